/* Concurrent compiles: processes and threads that race for a cache, forks amid compiles,
 * threads that are cancelled. Needs a compiler. */
#include "cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- races ---- */

TEST(racing_processes_all_get_it_right)
{
    begin();
    enum { PROCESSES = 8 };
    tc_options o = default_options();
    pid_t children[PROCESSES];
    fflush(stdout);
    tc_shutdown();
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            outcome r = attempt(&o, 0, true);
            tct_exit(r.status == TC_OK && r.correct && !strcmp(r.backend, "cpu") ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int ended = -1;
        CHECK_EQ_INT(waitpid(children[i], &ended, 0), children[i]);
        CHECK_EQ_INT(ended, 0);
    }
    CHECK_STR(find_file(in_dir("cache"), "tc-", ".tmp"), "");
#if defined(__SANITIZE_ADDRESS__)
    int most = PROCESSES; /* an instrumented object names its source file */
#else
    int most = 1; /* all made the same object */
#endif
    int objects = count_entries(in_dir("cache"), "tc-m-", ".so");
    CHECK(objects >= 1 && objects <= most);
    CHECK_EQ_INT(count_entries(in_dir("cache"), "tc-m-", ".c"), objects);
    hide_compilers(true);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 1);
    end();
}

static void *compile_in_thread(void *arg)
{
    const tc_options *o = arg;
    tc_ctx *ctx;
    bool good = false;
    if (tc_ctx_make(&ctx, o) == TC_OK) {
        tc_program *f;
        if (tc_compile(expression(ctx, 0), &f) == TC_OK) {
            good = run_is_correct(f, 0);
            tc_program_free(f);
        }
        tc_ctx_free(ctx);
    }
    return good ? arg : NULL;
}

TEST(racing_threads_compile_once)
{
    begin();
    enum { THREADS = 8 };
    tc_options o = default_options();
    pthread_t threads[THREADS];
    tc_ctx *ctx;
    o.no_disk_cache = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_stats before = stats_now(ctx);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, compile_in_thread, &o) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result != NULL);
    }
    tc_stats after = stats_now(ctx);
    CHECK_EQ_INT(after.compiles - before.compiles, 1);
    CHECK_EQ_INT(after.compiler_runs - before.compiler_runs, 1);
    CHECK_EQ_INT(after.memory_hits - before.memory_hits, THREADS - 1);
    tc_ctx_free(ctx);
    end();
}

/* ---- fork ---- */

static bool large_run_is_correct(tc_program *f)
{
    enum { LARGE = 1 << 20 };
    float *x = malloc(LARGE * sizeof(float));
    float *y = malloc(LARGE * sizeof(float));
    bool good = x && y;
    for (int i = 0; good && i < LARGE; i++) {
        x[i] = (float)i;
    }
    good = good && tc_run(f, TC_BUFS(TC_BUF(x, LARGE)), TC_BUFS(TC_BUF(y, LARGE))) == TC_OK;
    for (int i = 0; good && i < LARGE; i++) {
        good = y[i] == -(x[i] + 3);
    }
    free(x);
    free(y);
    return good;
}

TEST(a_forked_child_runs_and_compiles)
{
    begin();
    tc_options o = default_options();
    tc_ctx *ctx;
    tc_program *f;
    int ended = -1;
    o.threads = 4;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1 << 20);
    REQUIRE(tc_compile(tc_neg(tc_add(x, 3)), &f) == TC_OK);
    CHECK(large_run_is_correct(f)); /* the workers exist now */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool good = large_run_is_correct(f);
        o.threads = 1;
        outcome fresh = attempt(&o, 2, false);
        good = good && fresh.correct && !strcmp(fresh.backend, "cpu");
        tc_program_free(f);
        tc_ctx_free(ctx);
        tc_shutdown();
        tct_exit(!good);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    CHECK(large_run_is_correct(f));
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

static void *compile_much(void *arg)
{
    int *stop = arg;
    tc_options o = default_options();
    o.backend = "interp";
    o.no_disk_cache = true;
    while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
        (void)attempt(&o, (int)(tct_random() % 50), false);
    }
    return NULL;
}

/* A fork finds the locks of other threads in any state. */
TEST(a_child_forked_amid_compiles_is_not_stuck)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    SKIP("the sanitizer's own allocator may be locked in the child");
#endif
    begin();
    int stop = 0;
    pthread_t busy;
    tc_options o = default_options();
    o.backend = "interp";
    o.no_disk_cache = true;
    REQUIRE(pthread_create(&busy, NULL, compile_much, &stop) == 0);
    for (int i = 0; i < 200; i++) {
        int ended = -1;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            tct_exit(!attempt(&o, i % 50, false).correct);
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK_EQ_INT(ended, 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(busy, NULL);
    end();
}

/* ---- cancelled threads ---- */

static void *compile_and_stop(void *arg)
{
    (void)compile_in_thread(arg);
    pthread_testcancel();
    return NULL;
}

/* Others wait for what a thread compiles, so it is cancelled afterwards. */
TEST(a_cancelled_thread_finishes_its_compile)
{
    begin();
    tc_options o = default_options();
    pthread_t thread;
    void *result = NULL;
    o.no_disk_cache = true;
    o.cc = in_dir("slow"); /* is seen to run, then waits until the thread was cancelled */
    CHECK_EQ_INT(mkfifo(in_dir("begun"), 0600) + mkfifo(in_dir("go"), 0600), 0);
    write_script(o.cc, "#!/bin/sh\necho >\"${0%/*}/begun\"\nread x <\"${0%/*}/go\"\n"
                       "exec cc \"$@\"\n");
    REQUIRE(pthread_create(&thread, NULL, compile_and_stop, &o) == 0);
    char byte;
    int fd = open(in_dir("begun"), O_RDONLY);
    CHECK_EQ_INT(read(fd, &byte, 1), 1);
    CHECK_EQ_INT(pthread_cancel(thread), 0);
    close(fd);
    fd = open(in_dir("go"), O_WRONLY);
    CHECK_EQ_INT(write(fd, "x\n", 2), 2);
    close(fd);
    CHECK_EQ_INT(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    outcome r = attempt(&o, 0, false);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.memory_hits, 1); /* what it compiled is there */
    end();
}

TEST_MAIN
