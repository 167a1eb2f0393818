/* The caller's floating-point environment: whatever the program rounds to, flushes or traps, values
 * are the same (constants that a compile folds go into caches that all programs share), and after
 * each call the environment is as it was, with the flags that were raised. */
#define _GNU_SOURCE
#include "tc.h"
#include "tc_test.h"

#include <fenv.h>
#if defined(__SSE__) && defined(__x86_64__)
#include <xmmintrin.h>
#define FLUSHING 0x8040u /* FTZ and DAZ */
#endif

enum { DEFAULT, UPWARD, FLUSH, TRAPS, N_KINDS };

/* False: not to be had on this machine. */
static bool set_environment(int kind)
{
    fesetenv(FE_DFL_ENV);
#ifdef FLUSHING
    _mm_setcsr(_mm_getcsr() & ~FLUSHING);
    if (kind == FLUSH) {
        _mm_setcsr(_mm_getcsr() | FLUSHING);
        return true;
    }
#endif
#ifdef __GLIBC__
    if (kind == TRAPS) {
        return feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW) >= 0;
    }
#endif
#ifdef FE_UPWARD
    if (kind == UPWARD) {
        return fesetround(FE_UPWARD) == 0;
    }
#endif
    return kind == DEFAULT;
}

static bool is_environment(int kind)
{
    bool same = fetestexcept(FE_ALL_EXCEPT) == 0;
#ifdef FE_UPWARD
    same = same && fegetround() == (kind == UPWARD ? FE_UPWARD : FE_TONEAREST);
#endif
#ifdef FLUSHING
    same = same && ((_mm_getcsr() & FLUSHING) == FLUSHING) == (kind == FLUSH);
#endif
#ifdef __GLIBC__
    same = same && (fegetexcept() != 0) == (kind == TRAPS);
#endif
    return same;
}

static int environment; /* that each call must leave as it is */

static void check_environment(int line)
{
    bool same = is_environment(environment);
    if (!same) {
        fesetenv(FE_DFL_ENV); /* what prints must not trap */
    }
    CHECK_MSG(same, "line %d: the call changed environment %d", line, environment);
    if (!same) {
        set_environment(environment);
    }
}
#define CALL(x) ((x), check_environment(__LINE__))

enum { N_VALUES = 8 };

/* Values whose bits tell the environment that they were computed in. */
static void compute(const char *backend, float *values)
{
    static const float in[4] = {1, 2, 3, 4};
    tc_options o = {.backend = backend, .no_disk_cache = true, .threads = 1};
    tc_ctx *ctx;
    tc_program *f;
    tc_tensor x, third, folded, tiny, huge, gradient, w, bad, loss;
    float out[4];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    CALL(x = tc_input(ctx, "x", TC_F32, 4));
    CALL(third = tc_div(tc_full(ctx, 1, TC_F32), 3));
    CALL(folded = tc_exp(tc_sin(tc_sqrt(tc_add(third, 2)))));
    CALL(tiny = tc_mul(tc_full(ctx, 1e-41, TC_F64), 3)); /* denormal once it is f32 */
    CALL(tiny = tc_cast(tiny, TC_F32));
    CALL(huge = tc_full(ctx, 1e300, TC_F32)); /* overflows */
    CALL(huge = tc_add(huge, tc_log(tc_full(ctx, 0, TC_F32))));
    CALL(w = tc_param(ctx, in, TC_F32, 4));
    CALL(loss = tc_mean(tc_square(tc_log_softmax(w, 0)), TC_ALL, false));
    CALL(tc_grad(loss, &w, 1, &gradient));
    CALL(tc_grad(loss, &w, -1, &gradient));
    CALL(bad = tc_add(x, tc_full(ctx, 1, TC_F32, 3)));
    CALL(tc_arange(ctx, 0, 1, 0.1, TC_F32));
    CALL(tc_keep(bad));
    CALL(tc_compile(tc_mul(x, folded), &f));
    CALL(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))));
    memcpy(values, out, sizeof(out));
    CALL(tc_read(tiny, &values[4], 1));
    CALL(tc_read(tc_sum(gradient, TC_ALL, false), &values[5], 1));
    CALL(tc_read(huge, &values[6], 1));
    CALL(tc_read(tc_cast(tc_full(ctx, 0.1, TC_F64), TC_F32), &values[7], 1));
    tc_scope_begin(ctx);
    CALL(tc_keep(tc_exp(folded)));
    tc_scope_end(ctx);
    CALL(tc_eval(x));
    CALL(tc_eval_many(TC_TENSORS(folded, third)));
    CALL(tc_read(bad, out, 4));
    FILE *nowhere = fopen("/dev/null", "w");
    REQUIRE(nowhere != NULL);
    CALL(tc_print(nowhere, tc_add(gradient, 1e-9)));
    CALL(tc_explain(f, nowhere));
    fclose(nowhere);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(values_and_environment_stay_as_they_are)
{
    const char *backends[2] = {"interp", NULL};
    for (int b = 0; b < 2; b++) {
        float expected[N_VALUES], got[N_VALUES];
        for (int kind = DEFAULT; kind < N_KINDS; kind++) {
            environment = kind;
            if (!set_environment(kind)) {
                continue;
            }
            compute(backends[b], kind == DEFAULT ? expected : got);
            fesetenv(FE_DFL_ENV);
            set_environment(DEFAULT);
            if (kind != DEFAULT) {
                CHECK_MSG(!memcmp(got, expected, sizeof(got)),
                          "environment %d: %a %a %a, expected %a %a %a", kind, (double)got[0],
                          (double)got[4], (double)got[7], (double)expected[0], (double)expected[4],
                          (double)expected[7]);
            }
        }
    }
}

/* A flag that the caller has raised stays raised, and none is added. */
TEST(flags_stay)
{
    tc_ctx *ctx;
    float value;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_DIVBYZERO);
    float three[3];
    tc_read(tc_exp(tc_div(tc_full(ctx, 1, TC_F32, 3), 3)), three, 3);
    tc_read(tc_mul(tc_full(ctx, 1e-30, TC_F32), 1e-30), &value, 1);
    CHECK_EQ_INT(fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
    feclearexcept(FE_ALL_EXCEPT);
    tc_ctx_free(ctx);
}

TEST_MAIN
