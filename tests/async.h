/* tests/async.h - asynchronous runs: their order, what events tell, and who may go before whom. The
 * program that includes it says where with `static tc_ctx *context(void)`, made by context_on: the
 * interpreter (unit/test_async.c), a GPU (cuda/test_queue.c). */
#ifndef TESTS_ASYNC_H
#define TESTS_ASYNC_H

#include "tc_test.h"

#include <pthread.h>

static tc_ctx *context(void);

enum { N = 500, MANY = 40 };

static tc_ctx *context_on(const char *backend)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.no_disk_cache = true;
    CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_OK);
    return ctx;
}

/* x * x + add */
static tc_program *square(tc_ctx *ctx, double add)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, N);
    CHECK_EQ_INT(tc_compile(tc_add(tc_mul(x, x), add), &f), TC_OK);
    return f;
}

/* Each run takes what the one before it made: the last one is right only if all were in order. */
TEST(runs_of_a_queue_are_in_order)
{
    static float chain[MANY + 1][N];
    tc_ctx *ctx = context();
    tc_program *f = NULL;
    tc_queue *q = NULL;
    tc_event *last = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, N);
    REQUIRE(tc_compile(tc_add(tc_mul(x, 3), 1), &f) == TC_OK && tc_queue_make(&q) == TC_OK);
    for (int i = 0; i < MANY; i++) {
        bool is_last = i + 1 == MANY;
        tc_status status = tc_run_async(f, q, TC_BUFS(TC_BUF(chain[i], N)),
                                        TC_BUFS(TC_BUF(chain[i + 1], N)), is_last ? &last : NULL);
        CHECK_MSG(status == TC_OK, "%s", tc_error(f));
    }
    CHECK_EQ_INT(tc_event_wait(last), TC_OK);
    CHECK(tc_event_done(last));
    CHECK_STR(tc_error(last), "");
    float want = 0;
    for (int i = 0; i < MANY; i++) {
        want = want * 3 + 1;
    }
    for (int i = 0; i < N; i++) {
        CHECK(chain[MANY][i] == want);
    }
    tc_event_free(last);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(the_program_and_the_event_may_go_first)
{
    static float in[8][N], out[8][N];
    tc_ctx *ctx = context();
    tc_queue *q = NULL;
    REQUIRE(tc_queue_make(&q) == TC_OK);
    for (int i = 0; i < 8; i++) {
        tc_event *e = NULL;
        tc_program *f = square(ctx, i + 0.25);
        in[i][7] = (float)i;
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in[i], N)), TC_BUFS(TC_BUF(out[i], N)), &e),
                     TC_OK);
        tc_program_free(f);
        tc_event_free(e);
    }
    tc_ctx_free(ctx);
    tc_queue_free(q); /* waits for all of them */
    for (int i = 0; i < 8; i++) {
        CHECK(out[i][7] == (float)(i * i) + (float)i + 0.25f);
    }
}

/* ---- what is told, and when ---- */

typedef struct picker {
    tc_ctx *ctx;
    tc_program *f;
    tc_queue *q;
} picker;

static picker make_picker(void)
{
    picker p = {context(), NULL, NULL};
    tc_tensor x = tc_input(p.ctx, "x", TC_F32, N), at = tc_input(p.ctx, "at", TC_I64, 4);
    CHECK_EQ_INT(tc_compile(tc_index_select(x, 0, at), &p.f), TC_OK);
    CHECK_EQ_INT(tc_queue_make(&p.q), TC_OK);
    return p;
}

static tc_status pick(const picker *p, const int64_t *at, float *out, tc_event **event)
{
    static float x[N] = {10, 11, 12, 13};
    return tc_run_async(p->f, p->q, TC_BUFS(TC_BUF(x, N), TC_BUF(at, 4)), TC_BUFS(TC_BUF(out, 4)),
                        event);
}

static void free_picker(picker *p)
{
    tc_queue_free(p->q);
    tc_program_free(p->f);
    tc_ctx_free(p->ctx);
}

TEST(what_is_found_later_is_told_by_the_event)
{
    static int64_t good[4] = {0, 1, 2, 3}, bad[4] = {0, 1, N, 3};
    float out[3][4] = {{0}};
    tc_event *events[3] = {NULL};
    picker p = make_picker();
    CHECK_EQ_INT(pick(&p, good, out[0], &events[0]), TC_OK);
    CHECK_EQ_INT(pick(&p, bad, out[1], &events[1]), TC_OK);
    CHECK_EQ_INT(pick(&p, good, out[2], &events[2]), TC_OK);
    CHECK_EQ_INT(tc_event_wait(events[2]), TC_OK);
    CHECK_EQ_INT(tc_event_wait(events[1]), TC_ERR_INDEX);
    CHECK_HAS(tc_error(events[1]), "index 500 (element 2 of input 1 \"at\") is outside axis 0");
    CHECK_EQ_INT(tc_event_wait(events[1]), TC_ERR_INDEX); /* as often as one asks */
    CHECK_EQ_INT(tc_event_wait(events[0]), TC_OK);
    CHECK(out[0][3] == 13 && out[2][3] == 13);
    for (int i = 0; i < 3; i++) {
        tc_event_free(events[i]);
    }
    free_picker(&p);
}

/* Runs without an event: the next event that is recorded tells of the first that failed. */
TEST(a_recorded_event_tells_of_runs_without_one)
{
    static int64_t good[4], bad[4] = {-N - 1}, worse[4] = {3 * N};
    float out[4][4];
    tc_event *first = NULL, *second = NULL, *own = NULL;
    picker p = make_picker();
    CHECK_EQ_INT(pick(&p, good, out[0], NULL), TC_OK);
    CHECK_EQ_INT(pick(&p, bad, out[1], NULL), TC_OK);
    CHECK_EQ_INT(pick(&p, worse, out[2], NULL), TC_OK);
    CHECK_EQ_INT(pick(&p, worse, out[3], &own), TC_OK);
    CHECK_EQ_INT(tc_event_record(p.q, &first), TC_OK);
    CHECK_EQ_INT(tc_event_record(p.q, &second), TC_OK);
    CHECK_EQ_INT(tc_event_wait(second), TC_OK);
    CHECK_EQ_INT(tc_event_wait(first), TC_ERR_INDEX);
    CHECK_HAS(tc_error(first), "index -501");
    CHECK_EQ_INT(tc_event_wait(own), TC_ERR_INDEX);
    double ms = -1;
    CHECK_EQ_INT(tc_event_elapsed(own, second, &ms), TC_OK);
    CHECK(ms >= 0 && ms < 1e5);
    tc_event_free(first);
    tc_event_free(second);
    tc_event_free(own);
    free_picker(&p);
}

TEST(what_can_be_told_at_once_is)
{
    static float in[N], out[N];
    tc_ctx *ctx = context();
    tc_program *f = square(ctx, 0.75);
    tc_queue *q = NULL;
    tc_event *e = NULL;
    double ms;
    REQUIRE(tc_queue_make(&q) == TC_OK);
    CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, N - 1)), TC_BUFS(TC_BUF(out, N)), &e),
                 TC_ERR_BUFFER);
    CHECK(e == NULL);
    CHECK_HAS(tc_error(f), "tc_run_async: input 0: given 499 elements, expected 500");
    CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(in + 1, N)), &e),
                 TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_run_async(f, NULL, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N)), &e),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(f), "expected a queue");
    CHECK_EQ_INT(tc_run_async((tc_program *)NULL, q, TC_BUFS(TC_BUF(in, N)),
                              TC_BUFS(TC_BUF(out, N)), &e),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_queue_make(NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_event_record(q, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_event_record(NULL, &e), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_event_wait(NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_event_elapsed(NULL, NULL, &ms), TC_ERR_ARGUMENT);
    CHECK(!tc_event_done(NULL));
    tc_event_free(NULL);
    tc_queue_free(NULL);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- parameters, symbols, several queues ---- */

TEST(steps_of_a_training_follow_each_other)
{
    static float zero[N], now[N];
    float by[MANY], out[MANY];
    tc_ctx *ctx = context();
    tc_program *f = NULL;
    tc_queue *q = NULL;
    tc_event *e = NULL;
    tc_tensor p = tc_param(ctx, zero, TC_F32, N), x = tc_input(ctx, "x", TC_F32);
    tc_tensor next = tc_add(tc_mul(p, 2), x);
    REQUIRE(tc_compile_fn(TC_TENSORS(x),
                          TC_TENSORS(tc_sum(next, TC_ALL, false), tc_assign(p, next)), NULL,
                          &f) == TC_OK);
    REQUIRE(tc_queue_make(&q) == TC_OK);
    double want = 0;
    for (int i = 0; i < 12; i++) {
        by[i] = (float)i;
        want = 2 * want + i;
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(&by[i], 1)), TC_BUFS(TC_BUF(&out[i], 1)),
                                  NULL),
                     TC_OK);
    }
    CHECK_EQ_INT(tc_event_record(q, &e), TC_OK);
    CHECK_EQ_INT(tc_event_wait(e), TC_OK);
    CHECK_EQ_INT(tc_read(p, now, N), TC_OK);
    CHECK(now[0] == (float)want && now[N - 1] == (float)want && out[11] == (float)(want * N));
    tc_event_free(e);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(sizes_may_be_symbols)
{
    static float in[MANY * 3], out[MANY][MANY * 3];
    tc_ctx *ctx = context();
    tc_program *f = NULL;
    tc_queue *q = NULL;
    tc_event *e = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 100), 3);
    REQUIRE(tc_compile(tc_add(x, tc_sum(x, TC_ALL, false)), &f) == TC_OK);
    REQUIRE(tc_queue_make(&q) == TC_OK);
    for (int i = 0; i < MANY * 3; i++) {
        in[i] = 1;
    }
    for (int n = 1; n < MANY; n++) {
        int64_t sizes[2] = {n, 3}; /* the list may go when the call returns */
        tc_buf b = TC_BUF(in, 3 * n);
        b.rank = 2;
        b.sizes = sizes;
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(b), TC_BUFS(TC_BUF(out[n], 3 * n)), NULL), TC_OK);
        sizes[0] = sizes[1] = -1;
    }
    CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out[0], 4)), &e),
                 TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_event_record(q, &e), TC_OK);
    CHECK_EQ_INT(tc_event_wait(e), TC_OK);
    for (int n = 1; n < MANY; n++) {
        CHECK(out[n][0] == (float)(3 * n + 1) && out[n][3 * n - 1] == (float)(3 * n + 1));
    }
    tc_event_free(e);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Several threads, each with a queue of its own and one that they share. */
enum { THREADS = 4 };
typedef struct giver {
    tc_program *f;
    tc_queue *shared;
    int wrong, number;
    pthread_t thread;
} giver;

static void *give_runs(void *arg)
{
    giver *g = arg;
    static float in[THREADS][N], out[THREADS][MANY][N];
    tc_queue *own = NULL;
    g->wrong += tc_queue_make(&own) != TC_OK;
    for (int i = 0; i < N; i++) {
        in[g->number][i] = (float)g->number;
    }
    for (int i = 0; i < MANY && own; i++) {
        tc_event *e = NULL;
        float *to = out[g->number][i];
        g->wrong += tc_run_async(g->f, i % 2 ? own : g->shared, TC_BUFS(TC_BUF(in[g->number], N)),
                                 TC_BUFS(TC_BUF(to, N)), &e) != TC_OK;
        if (i % 5 == 0) {
            g->wrong += tc_event_wait(e) != TC_OK;
            g->wrong += to[N - 1] != (float)(g->number * g->number) + 1;
        }
        tc_event_free(e);
    }
    tc_event *all = NULL;
    g->wrong += tc_event_record(g->shared, &all) != TC_OK || tc_event_wait(all) != TC_OK;
    tc_event_free(all);
    tc_queue_free(own);
    for (int i = 0; i < MANY; i++) {
        g->wrong += out[g->number][i][0] != (float)(g->number * g->number) + 1;
    }
    return NULL;
}

TEST(threads_share_programs_and_queues)
{
    giver givers[THREADS];
    tc_ctx *ctx = context();
    tc_program *f = square(ctx, 1);
    tc_queue *shared = NULL;
    REQUIRE(tc_queue_make(&shared) == TC_OK);
    for (int i = 0; i < THREADS; i++) {
        givers[i] = (giver){.f = f, .shared = shared, .number = i};
        REQUIRE(!pthread_create(&givers[i].thread, NULL, give_runs, &givers[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(givers[i].thread, NULL);
        CHECK_EQ_INT(givers[i].wrong, 0);
    }
    tc_queue_free(shared);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

#endif
