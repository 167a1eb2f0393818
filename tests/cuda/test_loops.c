/* tests/cuda/test_loops.c - repetitions, loops and branches where steps are launches: on the
 * emulated CUDA dialect, and on a GPU where there is one. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "loop_cases.h"

/* Whether it compiles and runs something. */
static bool have(const char *backend)
{
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx = NULL;
    float sum = 0;
    tc_register_backend(emulation());
    bool there = tc_ctx_make(&ctx, &o) == TC_OK;
    there = there && tc_read(tc_sum(tc_full(ctx, 1, TC_F32, 3), TC_ALL, false), &sum, 1) == TC_OK;
    tc_ctx_free(ctx);
    return there && sum == 3;
}

#define NEED(backend)                                                                              \
    if (!have(backend)) {                                                                          \
        SKIP("no backend %s here", backend);                                                       \
    }

/* A thread of the emulation is slow: it does not sum what is cut in parts. */
static void compare(const char *backend, bool all)
{
    static values looped;
    for (int i = 0; i < CASES; i++) {
        if (all || strcmp(cases[i].name, "large")) {
            run_case(&cases[i], backend, false, &looped);
            check_reference(&cases[i], backend, &looped);
        }
    }
}

TEST(steps_as_launches)
{
    NEED("emulated");
    compare("emulated", tct_soak);
}

TEST(loops_and_branches_as_launches)
{
    NEED("emulated");
    check_while("emulated");
    check_branch("emulated", false);
    check_branch("emulated", true);
}

TEST(gradients_as_launches)
{
    NEED("emulated");
    compare_gradients("emulated", false);
}

TEST(loops_on_a_gpu)
{
    NEED("cuda");
    compare("cuda", true);
    check_while("cuda");
    check_branch("cuda", false);
    check_branch("cuda", true);
    compare_gradients("cuda", true);
}

TEST_MAIN
