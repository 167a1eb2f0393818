/* tests/unit/test_async.c - asynchronous runs (async.h) on the interpreter, and on a device without
 * queues of its own. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "../async.h"
#include "../null_backend.c"

static tc_ctx *context(void)
{
    return context_on("interp");
}

/* ---- a device without queues: the thread does its runs ---- */

TEST(a_device_without_queues_takes_the_thread)
{
    static float in[N], out[N];
    (void)tc_register_backend(&null_backend);
    tc_ctx *ctx = context_on("null");
    tc_program *f = square(ctx, 0.5);
    tc_queue *q = NULL;
    tc_event *e = NULL;
    REQUIRE(f && tc_queue_make(&q) == TC_OK);
    int launched = null_seen.launched;
    CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N)), &e), TC_OK);
    CHECK_EQ_INT(tc_event_wait(e), TC_OK);
    CHECK_EQ_INT(null_seen.launched - launched, 1);
    tc_event_free(e);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    CHECK_EQ_INT(null_seen.blocks, 0);
}

TEST_MAIN
