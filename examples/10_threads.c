/* 10_threads.c - a program is shared by threads, and its work by those of the host.
 *
 * tc_run may be called from any number of threads at once: a run takes a workspace from the
 * program's own pool and no lock that is held while it computes. A context is what belongs to one
 * thread at a time, so it records here and the threads only run. options.parallel_for hands large
 * kernels to a job system that the host already has; neither changes a bit of a result.
 *
 * Prints the time of a run with four threads, the number of tasks, and how many results are wrong
 * (none).
 *
 * Build, from the project's root: cc -O2 -I. examples/10_threads.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <pthread.h>

#include "example.h"

enum { N = 1 << 16, THREADS = 4, RUNS = 200 };

typedef struct worker {
    tc_program *program;
    float in[N], out[N];
    int failures;
} worker;
static worker workers[THREADS];
static float expected[N];

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < RUNS; i++) {
        tc_status status = tc_run(w->program, TC_BUFS(TC_BUF(w->in, N)),
                                  TC_BUFS(TC_BUF(w->out, N)));
        w->failures += status != TC_OK || memcmp(w->out, expected, sizeof(expected)) != 0;
    }
    return NULL;
}

/* The host's job system: here the least that keeps the promise, which is to call them all. */
static void host_parallel_for(void *user, int n, void (*task)(void *arg, int i), void *arg)
{
    *(int *)user += n;
    for (int i = n - 1; i >= 0; i--) {
        task(arg, i);
    }
}

static tc_program *compile(tc_ctx *ctx)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, N / 256, 256);
    tc_tensor y = tc_softmax(tc_mul(x, tc_sigmoid(x)), -1);
    CHECK_OK(tc_compile(y, &f), y);
    return f;
}

int main(void)
{
    static worker by_host;
    pthread_t threads[THREADS];
    int tasks = 0, failures = 0;
    tc_options options = {.threads = THREADS,
                          .parallel_for = host_parallel_for,
                          .parallel_user = &tasks};
    tc_ctx *ctx, *host;
    if (tc_ctx_make(&ctx, NULL) || tc_ctx_make(&host, &options)) {
        return 1;
    }
    for (int i = 0; i < THREADS * N; i++) {
        workers[i / N].in[i % N] = (float)(i % N % 1000) * 0.01f - 5;
    }
    tc_program *f = compile(ctx);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(workers[0].in, N)), TC_BUFS(TC_BUF(expected, N))), f);
    double begin = now_us();
    for (int i = 0; i < THREADS; i++) {
        workers[i].program = f;
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        failures += workers[i].failures;
    }
    printf("%d threads, one program: %.1f us a run, %d wrong\n", (int)THREADS,
           (now_us() - begin) / (THREADS * RUNS), failures);
    memcpy(by_host.in, workers[0].in, sizeof(by_host.in));
    by_host.program = compile(host); /* the same code, found in memory */
    work(&by_host);
    printf("by the host's job system: %d tasks, %d wrong\n", tasks, by_host.failures);
    tc_program_free(f);
    tc_program_free(by_host.program);
    tc_ctx_free(host);
    tc_ctx_free(ctx);
    return failures || by_host.failures || tasks == 0;
}
