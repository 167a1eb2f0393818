/* Memory that runs out at the n-th request while programs of symbolic sizes, and of many rewrites,
 * are recorded and compiled: always TC_ERR_MEMORY, never another status. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

/* A scene makes outputs of inputs in a fresh context. */
typedef struct oom_scene {
    const char *name;
    int (*make)(tc_ctx *ctx, tc_tensor *out); /* returns how many */
} oom_scene;

static tc_tensor batch(tc_ctx *ctx)
{
    return tc_input(ctx, "x", TC_F32, TC_DIM("b", 1, 64), 4);
}

static int of_softmax(tc_ctx *ctx, tc_tensor *out)
{
    out[0] = tc_softmax(batch(ctx), 1);
    return 1;
}

static int of_moves(tc_ctx *ctx, tc_tensor *out)
{
    tc_tensor x = batch(ctx);
    int64_t b = tc_size(x, 0);
    tc_tensor flat = tc_reshape(x, -1), rows = tc_reshape(flat, tc_dim_mul(b, 2), 2);
    out[0] = tc_cat(TC_TENSORS(x, tc_pad(x, 0, 1, 2, 7)), 0);
    out[1] = tc_slice(rows, 0, 1, tc_dim_sub(tc_dim_mul(b, 2), 1), 1);
    out[2] = tc_flip(tc_expand(tc_unsqueeze(x, 0), 3, b, 4), 1);
    return 3;
}

static int of_sums(tc_ctx *ctx, tc_tensor *out)
{
    tc_tensor x = batch(ctx), y = tc_input(ctx, "y", TC_F32, 4, TC_DIM("c", 1, 9));
    out[0] = tc_matmul(x, y);
    out[1] = tc_einsum("ij,kj->ik", TC_TENSORS(x, x));
    out[2] = tc_cumsum(x, 0);
    out[3] = tc_var(x, TC_AXES(0), 1, false);
    return 4;
}

static int of_images(tc_ctx *ctx, tc_tensor *out)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 2, TC_DIM("h", 5, 40), TC_DIM("w", 5, 40));
    tc_tensor w = tc_full(ctx, 0.5, TC_F32, 3, 2, 3, 3);
    out[0] = tc_conv2d(x, w, TC_NONE, &(tc_conv){.stride = {2, 2}, .padding = {1, 1}});
    out[1] = tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}});
    return 2;
}

static int of_gradients(tc_ctx *ctx, tc_tensor *out)
{
    tc_tensor x = batch(ctx);
    tc_tensor loss = tc_sum(tc_mul(tc_log_softmax(x, 1), tc_tanh(x)), TC_ALL, false);
    tc_grad(loss, &x, 1, out);
    return 1;
}

static int of_matrices(tc_ctx *ctx, tc_tensor *out)
{
    tc_tensor p = tc_input(ctx, "p", TC_F32, 8, 4);
    out[0] = tc_inv(
        tc_add(tc_matmul(tc_transpose(p, 0, 1), p), tc_diag(tc_full(ctx, 1, TC_F32, 4), 0)));
    return 1;
}

static const oom_scene oom_scenes[] = {{"softmax", of_softmax},     {"moves", of_moves},
                                       {"sums", of_sums},           {"images", of_images},
                                       {"gradients", of_gradients}, {"matrices", of_matrices}};

/* The first status that is not TC_OK, and its text. */
static tc_status oom_play(const oom_scene *scene, char text[300])
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    tc_ctx *ctx = NULL;
    tc_tensor out[8];
    tc_status status = tc_ctx_make(&ctx, &o);
    int n = status ? 0 : scene->make(ctx, out);
    text[0] = 0;
    for (int i = 0; i < n && !status; i++) {
        tc_program *f = NULL;
        status = tc_status_of(out[i]) ? tc_status_of(out[i]) : tc_compile(out[i], &f);
        snprintf(text, 300, "%s", status ? tc_error(ctx) : "");
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
    tc_shutdown();
    return status;
}

TEST(every_request_of_a_compile_may_fail)
{
    for (int s = 0; s < TCI_COUNT(oom_scenes); s++) {
        const oom_scene *scene = &oom_scenes[s];
        char text[300];
        bool over = false;
        long at = 0;
        for (int warm = 0; warm < 30; warm++) { /* freed contexts wait before they are used again */
            tc_status status = oom_play(scene, text);
            CHECK_MSG(status == TC_OK, "%s: %s", scene->name, text);
        }
        long live = tci_test_alloc_live;
        for (at = 1; !over && tct_failures < 10; at++) {
            tci_test_alloc_count = 0;
            tci_test_alloc_fail_at = at;
            tc_status status = oom_play(scene, text);
            over = tci_test_alloc_count < at;
            tci_test_alloc_fail_at = 0;
            CHECK_MSG(status == TC_OK || status == TC_ERR_MEMORY, "%s, request %ld: %s: %s",
                      scene->name, at, tc_status_text(status), text);
            CHECK_MSG(tci_test_alloc_live <= live, "%s, request %ld: %ld blocks are left",
                      scene->name, at, (long)tci_test_alloc_live - live);
        }
        CHECK_MSG(at > 20, "%s: only %ld requests", scene->name, at);
    }
}

TEST_MAIN
