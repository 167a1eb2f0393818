/* Cancelled runs: a loop that never ends is ended by tc_call_cancel and by options.cancel, from
 * another thread and from a signal handler, on the interpreter, in native code and in queues.
 * Parameters are as they were, and what ran goes on running. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { WIDE = 3, SOON_US = 20000 };
static const int64_t NEVER = INT64_MAX;
static volatile sig_atomic_t flag;

static const char *const backends[2] = {"interp", "cpu"};

static tc_ctx *make_ctx(const char *backend, bool flagged)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend,
                    .no_disk_cache = true,
                    .threads = 1,
                    .cancel = flagged ? &flag : NULL};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

/* ---- loops of as many steps as an input says ---- */

static tc_status is_below(void *user, const tc_tensor *carry, tc_tensor *go)
{
    *go = tc_lt(carry[1], *(const tc_tensor *)user);
    return tc_status_of(*go);
}

static tc_status add_one(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_add(carry[0], 1);
    next[1] = tc_add(carry[1], 1);
    return tc_status_of(next[0]);
}

/* x plus the number of steps. */
static tc_tensor count_up(tc_tensor x, tc_tensor steps)
{
    tc_tensor last[2];
    CHECK_MSG(!tc_while(TC_TENSORS(x, tc_full(x.ctx, 0, TC_I64)), 0, is_below, add_one, &steps,
                        last),
              "%s", tc_error(last[0]));
    return last[0];
}

static tc_status count_inside(void *user, const tc_tensor *carry, const tc_tensor *x,
                              tc_tensor *next, tc_tensor *y)
{
    (void)x;
    (void)y;
    next[0] = count_up(carry[0], *(const tc_tensor *)user);
    return tc_status_of(next[0]);
}

static tc_status step(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    (void)user;
    (void)x;
    (void)y;
    next[0] = tc_add(carry[0], 1);
    return tc_status_of(next[0]);
}

enum { WHILE, NESTED, LONG_SCAN, SYMBOLIC, LOOPS };
static const char *const names[] = {"while", "a while in a scan", "a long scan", "symbolic sizes"};

/* Inputs: x [WIDE], steps []. One output. */
static tc_program *compile_loop(tc_ctx *ctx, int loop)
{
    int64_t n = loop == SYMBOLIC ? TC_DIM("n", 1, 100) : WIDE;
    tc_tensor x = tc_input(ctx, "x", TC_F32, n), steps = tc_input(ctx, "steps", TC_I64), y = x;
    tc_program *f = NULL;
    tc_tensors none = {NULL, 0};
    if (loop == NESTED) {
        tc_scan(TC_TENSORS(x), none, 2, false, count_inside, &steps, &y, NULL, 0);
    } else if (loop == LONG_SCAN) { /* of 2^50 steps, whatever the input says */
        tc_scan(TC_TENSORS(tc_add(x, tc_cast(steps, TC_F32))), none, (int64_t)1 << 50, false, step,
                NULL, &y, NULL, 0);
    } else {
        y = count_up(x, steps);
    }
    CHECK_MSG(!tc_compile_fn(TC_TENSORS(x, steps), TC_TENSORS(y), NULL, &f), "%s", tc_error(y));
    return f;
}

/* What a number of steps make of 1, 2, 3. */
static void check_values(int loop, const float *out, int64_t steps)
{
    float more = (float)(loop == NESTED ? 2 * steps : steps);
    for (int i = 0; i < WIDE; i++) {
        CHECK_MSG(out[i] == 1 + (float)i + more, "%s: %g", names[loop], (double)out[i]);
    }
}

/* ---- who cancels ---- */

static void sleep_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static void *cancel_soon(void *call)
{
    sleep_us(SOON_US);
    tc_call_cancel(call);
    return NULL;
}

static void *set_flag_soon(void *unused)
{
    sleep_us(SOON_US);
    __atomic_store_n(&flag, 1, __ATOMIC_RELAXED);
    return unused;
}

static tc_call *signalled;

static void on_alarm(int number)
{
    (void)number;
    flag = 1;
    tc_call_cancel(signalled);
}

static void alarm_soon(void)
{
    struct itimerval once = {.it_value = {0, SOON_US}};
    struct sigaction act = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &once, NULL);
}

/* ---- tests ---- */

TEST(a_call_is_cancelled)
{
    float in[WIDE] = {1, 2, 3}, out[WIDE];
    int64_t few = 4;
    for (int i = 0; i < 2 * LOOPS; i++) {
        int loop = i / 2;
        tc_ctx *ctx = make_ctx(backends[i % 2], false);
        tc_program *f = compile_loop(ctx, loop);
        tc_call *call = NULL;
        pthread_t thread;
        REQUIRE(f && tc_call_make(f, &call) == TC_OK);
        for (int again = 0; again < 2; again++) {
            pthread_create(&thread, NULL, cancel_soon, call);
            tc_status status = tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&NEVER, 1)),
                                           TC_BUFS(TC_BUF(out, WIDE)));
            CHECK_MSG(status == TC_ERR_CANCELLED, "%s: %s", names[loop], tc_status_text(status));
            CHECK_HAS(tc_error(call), "the run was cancelled");
            pthread_join(thread, NULL);
            if (loop != LONG_SCAN) {
                CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)),
                                         TC_BUFS(TC_BUF(out, WIDE))),
                             TC_OK);
                check_values(loop, out, few);
            }
        }
        tc_call_free(call);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST(a_call_that_does_not_run_is_cancelled_in_its_next_run)
{
    float in[WIDE] = {1, 2, 3}, out[WIDE];
    int64_t few = 4, none = 0;
    for (int loop = WHILE; loop < LOOPS; loop += SYMBOLIC) {
        tc_ctx *ctx = make_ctx("interp", false);
        tc_program *f = compile_loop(ctx, loop);
        tc_call *call = NULL;
        REQUIRE(f && tc_call_make(f, &call) == TC_OK);
        const tc_bufs outputs = TC_BUFS(TC_BUF(out, WIDE));
        tc_call_cancel(call);
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)), outputs),
                     TC_ERR_CANCELLED);
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)), outputs), TC_OK);
        check_values(WHILE, out, few);
        tc_call_cancel(call); /* a run without a step takes it with it */
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&none, 1)), outputs),
                     TC_OK);
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)), outputs), TC_OK);
        tc_call_free(call);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    tc_call_cancel(NULL);
}

TEST(a_run_is_cancelled_by_a_flag)
{
    float in[WIDE] = {1, 2, 3}, out[WIDE];
    int64_t few = 4;
    for (int i = 0; i < 2 * LOOPS; i++) {
        int loop = i / 2;
        tc_ctx *ctx = make_ctx(backends[i % 2], true);
        tc_program *f = compile_loop(ctx, loop);
        pthread_t thread;
        REQUIRE(f);
        pthread_create(&thread, NULL, set_flag_soon, NULL);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&NEVER, 1)),
                            TC_BUFS(TC_BUF(out, WIDE))),
                     TC_ERR_CANCELLED);
        CHECK_HAS(tc_error(f), "tc_run: the run was cancelled");
        pthread_join(thread, NULL);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)),
                            TC_BUFS(TC_BUF(out, WIDE))),
                     TC_ERR_CANCELLED); /* it is still set */
        flag = 0;
        if (loop != LONG_SCAN) {
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)),
                                TC_BUFS(TC_BUF(out, WIDE))),
                         TC_OK);
            check_values(loop, out, few);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* Programs without loops, and of values without a run, look when they begin. */
TEST(values_without_a_run_are_cancelled_by_a_flag)
{
    float at[WIDE] = {1, 2, 3}, out[WIDE];
    tc_ctx *ctx = make_ctx("interp", true);
    pthread_t thread;
    tc_tensor x = tc_copy_in(ctx, at, TC_F32, WIDE), y = count_up(x, tc_full(ctx, NEVER, TC_I64));
    pthread_create(&thread, NULL, set_flag_soon, NULL);
    CHECK_EQ_INT(tc_read(y, out, WIDE), TC_ERR_CANCELLED);
    CHECK_HAS(tc_error(ctx), "the run was cancelled");
    pthread_join(thread, NULL);
    CHECK_EQ_INT(tc_eval(tc_mul(x, 3)), TC_ERR_CANCELLED);
    flag = 0;
    CHECK_EQ_INT(tc_read(tc_mul(x, 3), out, WIDE), TC_OK);
    CHECK_CLOSE(out[2], 9, 0);
    tc_ctx_free(ctx);
}

TEST(a_signal_handler_cancels)
{
    float in[WIDE] = {1, 2, 3}, out[WIDE];
    for (int by_flag = 0; by_flag < 2; by_flag++) {
        tc_ctx *ctx = make_ctx("interp", by_flag);
        tc_program *f = compile_loop(ctx, WHILE);
        tc_call *call = NULL;
        REQUIRE(f && tc_call_make(f, &call) == TC_OK);
        signalled = by_flag ? NULL : call;
        alarm_soon();
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&NEVER, 1)),
                                 TC_BUFS(TC_BUF(out, WIDE))),
                     TC_ERR_CANCELLED);
        flag = 0;
        tc_call_free(call);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* One parameter is changed by nothing that the loop makes, so before it; one by its result. The
 * program has symbolic sizes or none. */
TEST(parameters_are_as_they_were)
{
    float at[WIDE] = {1, 2, 3}, out[WIDE], got[2][WIDE];
    int64_t few = 4;
    for (int i = 0; i < 4; i++) {
        int64_t size = i / 2 ? TC_DIM("n", 1, 100) : WIDE;
        tc_ctx *ctx = make_ctx(backends[i % 2], true);
        tc_tensor more = tc_input(ctx, "more", TC_F32, size);
        tc_tensor early = tc_param(ctx, at, TC_F32, WIDE), late = tc_param(ctx, at, TC_F32, WIDE);
        tc_tensor steps = tc_input(ctx, "steps", TC_I64);
        tc_tensor doubled = tc_mul(early, 2);
        tc_tensor y = count_up(tc_add(doubled, tc_sum(more, TC_ALL, false)), steps);
        tc_tensor to_early = tc_assign(early, doubled);
        tc_tensor to_late = tc_assign(late, tc_add(late, y));
        tc_program *f = NULL;
        pthread_t thread;
        REQUIRE(tc_compile_fn(TC_TENSORS(steps, more), TC_TENSORS(y, to_early, to_late), NULL,
                              &f) == TC_OK);
        for (int run = 0; run < 3; run++) { /* cancelled, done, cancelled */
            const int64_t *n = run == 1 ? &few : &NEVER;
            if (run != 1) {
                pthread_create(&thread, NULL, set_flag_soon, NULL);
            }
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(n, 1), TC_BUF(at, WIDE)),
                                TC_BUFS(TC_BUF(out, WIDE))),
                         run == 1 ? TC_OK : TC_ERR_CANCELLED);
            if (run != 1) {
                pthread_join(thread, NULL);
            }
            flag = 0;
            REQUIRE(!tc_read(early, got[0], WIDE) && !tc_read(late, got[1], WIDE));
            for (int k = 0; k < WIDE; k++) {
                CHECK_CLOSE(got[0][k], run ? 2 * at[k] : at[k], 0);
                CHECK_CLOSE(got[1][k], run ? at[k] + 2 * at[k] + 6 + 4 : at[k], 0);
            }
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST(runs_of_a_queue_are_cancelled)
{
    float in[WIDE] = {1, 2, 3}, out[3][WIDE];
    int64_t few = 4;
    tc_ctx *ctx = make_ctx("interp", true);
    tc_program *f = compile_loop(ctx, WHILE);
    tc_queue *queue = NULL;
    tc_event *events[3];
    REQUIRE(f && tc_queue_make(&queue) == TC_OK);
    for (int i = 0; i < 3; i++) { /* one that never ends, and those behind it */
        const int64_t *n = i ? &few : &NEVER;
        REQUIRE(tc_run_async(f, queue, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(n, 1)),
                             TC_BUFS(TC_BUF(out[i], WIDE)), &events[i]) == TC_OK);
    }
    sleep_us(SOON_US);
    CHECK(!tc_event_done(events[0]));
    __atomic_store_n(&flag, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_event_wait(events[i]), TC_ERR_CANCELLED);
        CHECK_HAS(tc_error(events[i]), "the run was cancelled");
        tc_event_free(events[i]);
    }
    __atomic_store_n(&flag, 0, __ATOMIC_RELAXED);
    REQUIRE(tc_run_async(f, queue, TC_BUFS(TC_BUF(in, WIDE), TC_BUF(&few, 1)),
                         TC_BUFS(TC_BUF(out[0], WIDE)), &events[0]) == TC_OK);
    CHECK_EQ_INT(tc_event_wait(events[0]), TC_OK);
    check_values(WHILE, out[0], few);
    tc_event_free(events[0]);
    tc_queue_free(queue);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
