/* tests/cpu/test_threads.c - 32 threads that compile and run, the same graphs and different ones,
 * with contexts of their own; and 32 threads that run one program. Written to be run under a race
 * detector too. */
#include "tc.h"
#include "tc_test.h"

#include <pthread.h>

enum { THREADS_N = 32, THREADS_ROUNDS = 4, THREADS_SIZE = 4096 };

typedef struct threads_job {
    int index;
    tc_program *shared;
    int bad; /* what went wrong first: a line of this file; 0: nothing */
} threads_job;

#define THREADS_EXPECT(job, condition)                                                             \
    do {                                                                                           \
        if (!(condition) && !(job)->bad) {                                                         \
            (job)->bad = __LINE__;                                                                 \
        }                                                                                          \
    } while (0)

static void threads_run_all(void *(*body)(void *), tc_program *shared)
{
    static threads_job jobs[THREADS_N];
    pthread_t threads[THREADS_N];
    int started = 0;
    for (int i = 0; i < THREADS_N; i++) {
        jobs[i] = (threads_job){i, shared, 0};
        if (pthread_create(&threads[i], NULL, body, &jobs[i])) {
            break;
        }
        started++;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        CHECK_MSG(!jobs[i].bad, "thread %d failed at line %d", i, jobs[i].bad);
    }
    CHECK_EQ_INT(started, THREADS_N);
}

/* Graphs differ by `kind` in structure, and by thread in literals. */
static tc_tensor threads_graph(tc_ctx *ctx, tc_tensor x, int kind, int k)
{
    (void)ctx;
    tc_tensor y = tc_add(tc_mul(x, k + 3), 1);
    for (int i = 0; i < kind; i++) {
        y = tc_maximum(y, tc_mul(x, -1));
        y = tc_add(y, x);
    }
    return y;
}

static float threads_value(float x, int kind, int k)
{
    float y = x * (float)(k + 3) + 1;
    for (int i = 0; i < kind; i++) {
        y = y > -x ? y : -x;
        y = y + x;
    }
    return y;
}

static void threads_compile_and_run(threads_job *job, tc_ctx *ctx, int kind)
{
    float *x = malloc(THREADS_SIZE * sizeof(float));
    float *out = malloc(THREADS_SIZE * sizeof(float));
    tc_program *f = NULL;
    tc_tensor a = tc_input(ctx, "a", TC_F32, THREADS_SIZE);
    THREADS_EXPECT(job, tc_compile(threads_graph(ctx, a, kind, job->index), &f) == TC_OK);
    for (int i = 0; x && out && i < THREADS_SIZE; i++) {
        x[i] = (float)(i % 17 - 8);
    }
    if (f && x && out) {
        THREADS_EXPECT(job, tc_run(f, TC_BUFS(TC_BUF(x, THREADS_SIZE)),
                                   TC_BUFS(TC_BUF(out, THREADS_SIZE))) == TC_OK);
        for (int i = 0; i < THREADS_SIZE; i++) {
            THREADS_EXPECT(job, out[i] == threads_value(x[i], kind, job->index));
        }
    }
    tc_program_free(f);
    free(x);
    free(out);
}

static void *threads_same_graph(void *arg)
{
    threads_job *job = arg;
    tc_ctx *ctx = NULL;
    THREADS_EXPECT(job, tc_ctx_make(&ctx, NULL) == TC_OK);
    for (int i = 0; ctx && i < THREADS_ROUNDS; i++) {
        threads_compile_and_run(job, ctx, 2);
    }
    tc_ctx_free(ctx);
    return NULL;
}

static void *threads_different_graphs(void *arg)
{
    threads_job *job = arg;
    tc_ctx *ctx = NULL;
    THREADS_EXPECT(job, tc_ctx_make(&ctx, NULL) == TC_OK);
    for (int i = 0; ctx && i < THREADS_ROUNDS; i++) {
        threads_compile_and_run(job, ctx, (job->index + i) % 4);
    }
    tc_ctx_free(ctx);
    return NULL;
}

static void *threads_lazy_loop(void *arg)
{
    threads_job *job = arg;
    tc_options o = {.backend = "interp"};
    tc_ctx *ctx = NULL;
    THREADS_EXPECT(job, tc_ctx_make(&ctx, &o) == TC_OK);
    float start[3] = {1, 2, 3};
    tc_tensor x = tc_copy_in(ctx, start, TC_F32, 3);
    for (int i = 0; ctx && i < 50; i++) {
        THREADS_EXPECT(job, tc_scope_begin(ctx) == TC_OK);
        x = tc_keep(tc_add(x, job->index));
        THREADS_EXPECT(job, tc_scope_end(ctx) == TC_OK);
    }
    float out[3] = {0, 0, 0};
    THREADS_EXPECT(job, tc_read(x, out, 3) == TC_OK);
    THREADS_EXPECT(job, out[2] == 3.0f + 50.0f * (float)job->index);
    tc_ctx_free(ctx);
    return NULL;
}

static void *threads_one_program(void *arg)
{
    threads_job *job = arg;
    float x[8], out[8], wrong[7];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 8; i++) {
            x[i] = (float)(job->index * 100 + i + round);
        }
        THREADS_EXPECT(job, tc_run(job->shared, TC_BUFS(TC_BUF(x, 8)), TC_BUFS(TC_BUF(out, 8))) ==
                                TC_OK);
        for (int i = 0; i < 8; i++) {
            THREADS_EXPECT(job, out[i] == x[i] * 2 + 1);
        }
        if (job->index % 2) { /* errors are per thread */
            tc_status status = tc_run(job->shared, TC_BUFS(TC_BUF(x, 8)),
                                      TC_BUFS(TC_BUF(wrong, 7)));
            THREADS_EXPECT(job, status == TC_ERR_BUFFER);
            THREADS_EXPECT(job, strstr(tc_error(job->shared), "given 7 elements") != NULL);
        } else {
            THREADS_EXPECT(job, !*tc_error(job->shared));
        }
    }
    return NULL;
}

TEST(same_graph)
{
    threads_run_all(threads_same_graph, NULL);
}

TEST(different_graphs)
{
    threads_run_all(threads_different_graphs, NULL);
}

TEST(lazy_loops)
{
    threads_run_all(threads_lazy_loop, NULL);
}

TEST(one_program)
{
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    tc_tensor a = tc_input(ctx, "a", TC_F32, 8);
    REQUIRE(tc_compile(tc_add(tc_mul(a, 2), 1), &f) == TC_OK);
    tc_ctx_free(ctx);
    threads_run_all(threads_one_program, f);
    tc_program_free(f);
}

/* Large enough for workers: concurrent callers find the pool busy and work alone, with the same
 * result. */
static void *threads_large(void *arg)
{
    threads_job *job = arg;
    enum { N = 200000 };
    float *x = malloc(N * sizeof(float));
    float *out = malloc(N * sizeof(float));
    for (int i = 0; x && i < N; i++) {
        x[i] = (float)i;
    }
    for (int round = 0; x && out && round < 3; round++) {
        THREADS_EXPECT(job, tc_run(job->shared, TC_BUFS(TC_BUF(x, N)), TC_BUFS(TC_BUF(out, N))) ==
                                TC_OK);
        for (int i = 0; i < N; i++) {
            THREADS_EXPECT(job, out[i] == x[i] * 2 + 1);
        }
    }
    free(x);
    free(out);
    return NULL;
}

TEST(one_large_program)
{
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    tc_options o = {.threads = 4};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor a = tc_input(ctx, "a", TC_F32, 200000);
    REQUIRE(tc_compile(tc_add(tc_mul(a, 2), 1), &f) == TC_OK);
    tc_ctx_free(ctx);
    threads_run_all(threads_large, f);
    tc_program_free(f);
    tc_shutdown();
}

TEST_MAIN
