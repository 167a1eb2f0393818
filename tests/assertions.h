/* tests/assertions.h - runs in which an assertion fails: parameters are as they were, whatever the
 * run computes, where and when. After tc_test.h. */
#ifndef TESTS_ASSERTIONS_H
#define TESTS_ASSERTIONS_H

#include <math.h>

enum { ASSERTED = 8, ASSERTED_FORMS = 5 };

static tc_status test_asserted_cell(void *user, const tc_tensor *carry, const tc_tensor *x,
                                    tc_tensor *next, tc_tensor *y)
{
    (void)user, (void)y;
    next[0] = tc_add(carry[0], tc_assert_finite(x[0]));
    return TC_OK;
}

/* Returns a new value of w and sets *y; an assertion fails in one of the two if x has a NaN. */
static tc_tensor test_asserted_form(int form, tc_tensor w, tc_tensor x, tc_tensor at, tc_tensor *y)
{
    tc_tensor now = tc_add(w, 1);
    *y = tc_sum(x, TC_ALL, false);
    switch (form) {
    case 0: return tc_add(w, tc_assert_finite(x));
    case 1: *y = tc_sum(tc_assert_all(x, tc_lt(x, 5), "x below 5"), TC_ALL, false); return now;
    case 2:
        tc_scan(TC_TENSORS(w), TC_TENSORS(x), ASSERTED, false, test_asserted_cell, NULL, &now, NULL,
                0);
        return tc_sub(now, ASSERTED - 1);
    case 3: *y = tc_assert_finite(*y); return tc_add(tc_gather(w, 0, at), 1);
    default: return tc_add(w, tc_div(tc_sum(tc_assert_finite(x), TC_ALL, false), ASSERTED));
    }
}

static bool test_asserted_is(tc_tensor w, float want)
{
    float now[ASSERTED];
    bool same = tc_read(w, now, ASSERTED) == TC_OK;
    for (int i = 0; i < ASSERTED && same; i++) {
        same = now[i] == want;
    }
    return same;
}

static void test_asserted_runs(tc_program *f, tc_queue *q, tc_tensor w, tc_tensor other)
{
    float good[ASSERTED] = {1, 1, 1, 1, 1, 1, 1, 1}, bad[ASSERTED] = {1, 1, 1, 1, 1, NAN, 1, 1}, y;
    int64_t at[ASSERTED] = {0, 1, 2, 3, 4, 5, 6, 7};
    tc_bufs to = TC_BUFS(TC_BUF(&y, 1));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(bad, ASSERTED), TC_BUF(at, ASSERTED)), to), TC_ERR_CHECK);
    CHECK_HAS(tc_error(f), "assertions.h:");
    CHECK(test_asserted_is(w, 2) && test_asserted_is(other, 1));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(good, ASSERTED), TC_BUF(at, ASSERTED)), to), TC_OK);
    CHECK(test_asserted_is(w, 3) && test_asserted_is(other, 2) && y == ASSERTED);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(bad, ASSERTED), TC_BUF(at, ASSERTED)), to), TC_ERR_CHECK);
    tc_event *e = NULL;
    CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(bad, ASSERTED), TC_BUF(at, ASSERTED)), to, &e),
                 TC_OK);
    CHECK_EQ_INT(tc_event_wait(e), TC_ERR_CHECK);
    CHECK_HAS(tc_error(e), "assertions.h:");
    tc_event_free(e);
    CHECK(test_asserted_is(w, 3) && test_asserted_is(other, 2));
}

TCT_UNUSED static void test_failed_assertions(tc_ctx *ctx)
{
    static const float two[ASSERTED] = {2, 2, 2, 2, 2, 2, 2, 2};
    static const float one[ASSERTED] = {1, 1, 1, 1, 1, 1, 1, 1};
    tc_queue *q = NULL;
    REQUIRE(tc_queue_make(&q) == TC_OK);
    for (int form = 0; form < ASSERTED_FORMS; form++) {
        tc_tensor w = tc_param(ctx, two, TC_F32, ASSERTED);
        tc_tensor other = tc_param(ctx, one, TC_F32, ASSERTED);
        tc_tensor x = tc_input(ctx, "x", TC_F32, ASSERTED);
        tc_tensor at = tc_input(ctx, "at", TC_I64, ASSERTED), y;
        tc_tensor now = test_asserted_form(form, w, x, at, &y);
        tc_program *f = NULL;
        tc_status status = tc_compile_fn(
            TC_TENSORS(x, at), TC_TENSORS(y, tc_assign(w, now), tc_assign(other, tc_add(other, 1))),
            NULL, &f);
        CHECK_MSG(status == TC_OK, "form %d: %s", form, tc_error(ctx));
        REQUIRE(f);
        test_asserted_runs(f, q, w, other);
        tc_program_free(f);
    }
    tc_queue_free(q);
}

/* The same where tc_eval sets the parameter, and where all that the assertion reads is captured, so
 * that nothing of it differs from run to run. */
TCT_UNUSED static void test_failed_assertions_of_captured(tc_ctx *ctx)
{
    static const float two[ASSERTED] = {2, 2, 2, 2, 2, 2, 2, 2}, bad[ASSERTED] = {1, NAN};
    tc_tensor w = tc_param(ctx, two, TC_F32, ASSERTED), x = tc_copy_in(ctx, bad, TC_F32, ASSERTED);
    CHECK_EQ_INT(tc_eval(tc_assign(w, tc_add(w, tc_assert_finite(x)))), TC_ERR_CHECK);
    CHECK(test_asserted_is(w, 2));
    tc_tensor in = tc_input(ctx, "in", TC_F32);
    tc_tensor now = tc_add(w, tc_mul(in, tc_assert_finite(tc_sqrt(x))));
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(tc_assign(w, now)), NULL, &f) == TC_OK);
    for (int i = 0; i < 3; i++) {
        float v = 1;
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&v, 1)), TC_BUFS()), TC_ERR_CHECK);
        CHECK(test_asserted_is(w, 2));
    }
    tc_program_free(f);
}

#endif
