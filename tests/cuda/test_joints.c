/* tests/cuda/test_joints.c - kernels side by side in one launch, on the emulation: the update of
 * parameters of unlike sizes, whose sums and values have blocks of unlike numbers of threads. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"

enum { PARAMS = 6, LONGEST = 2000 };

static const int sizes[PARAMS] = {33, LONGEST, 64, 1027, 64, 1};

/* What all parameters are after two steps of AdamW on clipped gradients; the launches of one. */
static int run_steps(bool apart, float *all)
{
    tc_options o = {.backend = "emulated", .no_disk_cache = true, .verify = true,
                    .fallback = TC_FALLBACK_REFUSE, .fusion = apart ? -1 : 0};
    tc_tensor w[PARAMS], grads[PARAMS], clipped[PARAMS], effects[TC_EFFECTS(PARAMS)];
    static float grad[LONGEST];
    tc_buf buffers[PARAMS];
    tc_program_info info;
    tc_program *f = NULL;
    tc_ctx *ctx = NULL;
    int n = 0;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < LONGEST; i++) {
        grad[i] = (float)(i * 37 % 101 - 50) / 64;
    }
    for (int i = 0; i < PARAMS; i++) {
        w[i] = tc_param(ctx, grad, TC_F32, sizes[i]);
        grads[i] = tc_input(ctx, "", TC_F32, sizes[i]);
        buffers[i] = TC_BUF(grad, sizes[i]);
    }
    tc_clip_grads(grads, PARAMS, 0.5, clipped);
    REQUIRE(tc_adamw(w, clipped, PARAMS, 0.05, NULL, effects, &n) == TC_OK);
    tc_compile_fn(TC_TENSORS_N(grads, PARAMS), TC_TENSORS_N(effects, n), NULL, &f);
    CHECK_MSG(f != NULL, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    tc_program_get_info(f, &info);
    for (int i = 0; i < 2; i++) {
        tc_status status = tc_run(f, TC_BUFS_N(buffers, PARAMS), TC_BUFS_N(NULL, 0));
        CHECK_MSG(status == TC_OK, "%s", tc_error(f));
    }
    for (int i = 0; i < PARAMS; i++) {
        CHECK_EQ_INT(tc_read(w[i], all, sizes[i]), TC_OK);
        all += sizes[i];
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info.n_steps;
}

TEST(joints_have_the_bits_of_their_members)
{
    static float values[2][PARAMS * LONGEST];
    tc_register_backend(emulation());
    if (system("c++ --version >/dev/null 2>&1")) {
        SKIP("no C++ compiler");
    }
    int launches = run_steps(false, values[0]), apart = run_steps(true, values[1]);
    CHECK_MSG(launches <= 8 && apart > 2 * PARAMS, "%d launches, apart %d", launches, apart);
    CHECK(!memcmp(values[0], values[1], sizeof(values[0])));
}

TEST_MAIN
