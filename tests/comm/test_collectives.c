/* tests/comm/test_collectives.c - each collective against its definition, over shared memory, with
 * processes as ranks. */
#include "tc_comm.h"

#include "tc_test.h"

#include "ranks.h"

static tc_ctx *begin(void)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.threads = 1, .verify = true};
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* Runs y = f(x) on one input and one output of f32. */
static tc_status run(tc_tensor y, float *in, int n, float *out, int m)
{
    tc_program *f = NULL;
    tc_status status = tc_compile(y, &f);
    if (status) {
        printf("%s\n", tc_error(y));
        return status;
    }
    status = tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, m)));
    if (status) {
        printf("%s\n", tc_error(f));
    }
    tc_program_free(f);
    return status;
}

static void sums(tc_comm *comm)
{
    tc_ctx *ctx = begin();
    int rank = tc_comm_rank(comm), size = tc_comm_size(comm);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 5);
    tc_tensor y = tc_mul(tc_comm_all_reduce(comm, tc_add(x, 1), TC_COMM_SUM), 2);
    float in[5], out[5];
    for (int i = 0; i < 5; i++) {
        in[i] = (float)(10 * rank + i);
    }
    CHECK_EQ_INT(run(y, in, 5, out, 5), TC_OK);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ_INT((int)out[i], 2 * (10 * size * (size - 1) / 2 + size * (i + 1)));
    }
    tc_ctx_free(ctx);
}

TEST(sums_of_ranks)
{
    CHECK(ranks_run(2, 5000, sums));
    CHECK(ranks_run(4, 5000, sums));
    CHECK(ranks_run(1, 5000, sums));
}

TEST_MAIN
