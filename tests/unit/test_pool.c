/* tests/unit/test_pool.c - the worker pool: every task once, whatever the number of threads; life
 * and fork; the floating-point environment. */
#define _GNU_SOURCE 1 /* CPU_SET */
#include "inside.h"
#include "tc_test.h"

#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct pool_seen {
    int64_t n;
    int threads;
    int32_t times[256]; /* that a task was done; atomic */
    int32_t worker_of[256];
    int32_t ranges; /* atomic */
    int32_t bad;    /* atomic */
} pool_seen;

static void pool_body(void *arg, int worker, int64_t begin, int64_t end)
{
    pool_seen *seen = arg;
    __atomic_add_fetch(&seen->ranges, 1, __ATOMIC_RELAXED);
    if (worker < 0 || worker >= seen->threads || begin > end || begin < 0 || end > seen->n) {
        __atomic_add_fetch(&seen->bad, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        __atomic_add_fetch(&seen->times[i], 1, __ATOMIC_RELAXED);
        seen->worker_of[i] = worker;
    }
}

static void pool_check(const tc_options *o, int threads, int64_t n)
{
    pool_seen seen = {.n = n, .threads = threads};
    tci_pool_run(o, threads, n, 1, pool_body, &seen);
    CHECK_EQ_INT(seen.bad, 0);
    for (int64_t i = 0; i < n; i++) {
        CHECK_EQ_INT(seen.times[i], 1);
    }
}

static int pool_count_threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    if (d) {
        closedir(d);
    }
    return n;
}

/* The entry in /proc goes a little after the join. */
static bool pool_threads_become(int wanted)
{
    for (int i = 0; i < 1000; i++) {
        if (pool_count_threads() == wanted) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* What a worker finds that the caller met in a run. */
typedef struct pool_met {
    int32_t came;   /* atomic: a worker is in */
    int owner;      /* the processor of the caller */
    int32_t thread; /* the worker's */
    bool apart, given_back;
} pool_met;

static bool pool_may_run_on(int cpu)
{
    unsigned long mask[1024] = {0};
    int bits = 8 * (int)sizeof(mask[0]);
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
    return bytes > 0 && (mask[cpu / bits] >> (cpu % bits) & 1);
}

static void pool_meet(void *arg, int worker, int64_t begin, int64_t end)
{
    pool_met *met = arg;
    (void)begin, (void)end;
    if (worker) {
        met->thread = tci_os_thread();
        met->apart = !pool_may_run_on(met->owner);
        met->given_back = pool_may_run_on(1 - met->owner);
        __atomic_store_n(&met->came, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&met->came, __ATOMIC_ACQUIRE)) {
        usleep(100); /* so that a task is left for the worker */
    }
}

static bool pool_is_asleep(int32_t thread)
{
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
    FILE *f = fopen(path, "r");
    bool read = f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    if (f) {
        fclose(f);
    }
    return read && state == 'S';
}

TEST(who_sleeps_is_kept_off_the_callers_processor)
{
#ifdef _OPENMP
    SKIP("the threads are OpenMP's");
#endif
    cpu_set_t before, one;
    if (tci_os_cpu_count() < 2 || !pool_may_run_on(0) || !pool_may_run_on(1)) {
        SKIP("needs the first two processors");
    }
    tc_options o = {.spin_us = -1};
    pool_met met = {0};
    tci_pool_run(&o, 2, 2, 1, pool_meet, &met); /* makes the worker */
    pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
    for (int round = 0; round < 4; round++) {
        while (!pool_is_asleep(met.thread)) {
            usleep(100);
        }
        CPU_ZERO(&one);
        CPU_SET(round & 1, &one);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
        met = (pool_met){.owner = round & 1};
        tci_pool_run(&o, 2, 2, 1, pool_meet, &met);
        pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
        CHECK(met.apart);
        CHECK(met.given_back);
    }
    tci_pool_shutdown();
}

TEST(does_every_task_once)
{
    for (int threads = 1; threads <= 6; threads++) {
        for (int64_t n = 0; n <= 20; n++) {
            pool_check(NULL, threads, n);
        }
        pool_check(NULL, threads, 256);
    }
    tci_pool_shutdown();
}

TEST(works_without_spinning)
{
    tc_options o = {.spin_us = -1};
    for (int i = 0; i < 200; i++) {
        pool_check(&o, 3, 7);
    }
    tci_pool_shutdown();
}

TEST(wakes_sleeping_workers)
{
    tc_options o = {.spin_us = 1};
    for (int i = 0; i < 20; i++) {
        pool_check(&o, 4, 64);
        usleep(500);
    }
    tci_pool_shutdown();
}

/* Who meets a slow range does one; the others do the rest. */
static void pool_slow_body(void *arg, int worker, int64_t begin, int64_t end)
{
    pool_seen *seen = arg;
    pool_body(arg, worker, begin, end);
    if (begin == 0) {
        for (int i = 0; i < 5000; i++) {
            int32_t done = 0;
            for (int64_t j = end; j < seen->n; j++) {
                done += __atomic_load_n(&seen->times[j], __ATOMIC_RELAXED);
            }
            if (done == seen->n - end) {
                return;
            }
            usleep(1000);
        }
        __atomic_add_fetch(&seen->bad, 1, __ATOMIC_RELAXED);
    }
}

TEST(no_thread_waits_for_the_part_of_a_slow_one)
{
    pool_seen seen = {.n = 60, .threads = 3};
    tci_pool_run(NULL, 3, 60, 1, pool_slow_body, &seen);
    CHECK_EQ_INT(seen.bad, 0);
    for (int i = 0; i < 60; i++) {
        CHECK_EQ_INT(seen.times[i], 1);
    }
    tci_pool_shutdown();
}

static void pool_least_body(void *arg, int worker, int64_t begin, int64_t end)
{
    pool_body(arg, worker, begin, end);
    if (end - begin < 7) {
        __atomic_add_fetch(&((pool_seen *)arg)->bad, 1, __ATOMIC_RELAXED);
    }
}

TEST(ranges_are_worth_being_taken)
{
    for (int64_t n = 7; n <= 200; n += 3) {
        pool_seen seen = {.n = n, .threads = 4};
        tci_pool_run(NULL, 4, n, 7, pool_least_body, &seen);
        CHECK_EQ_INT(seen.bad, 0);
        for (int64_t i = 0; i < n; i++) {
            CHECK_EQ_INT(seen.times[i], 1);
        }
    }
    tci_pool_shutdown();
}

static void pool_nested_body(void *arg, int worker, int64_t begin, int64_t end)
{
    (void)worker;
    pool_seen *inner = arg;
    for (int64_t i = begin; i < end; i++) {
        tci_pool_run(NULL, 3, inner[i].n, 1, pool_body, &inner[i]);
    }
}

TEST(nested_runs_work_alone)
{
    static pool_seen inner[8];
    memset(inner, 0, sizeof(inner));
    for (int i = 0; i < 8; i++) {
        inner[i].n = 10 + i;
        inner[i].threads = 3;
    }
    tci_pool_run(NULL, 4, 8, 1, pool_nested_body, inner);
    for (int i = 0; i < 8; i++) {
        for (int64_t j = 0; j < inner[i].n; j++) {
            CHECK_EQ_INT(inner[i].times[j], 1);
        }
    }
    tci_pool_shutdown();
}

static void *pool_caller(void *arg)
{
    int32_t *bad = arg;
    for (int i = 0; i < 300; i++) {
        pool_seen seen = {.n = 50, .threads = 3};
        tci_pool_run(NULL, 3, 50, 1, pool_body, &seen);
        for (int j = 0; j < 50; j++) {
            if (seen.times[j] != 1) {
                __atomic_add_fetch(bad, 1, __ATOMIC_RELAXED);
            }
        }
    }
    return NULL;
}

TEST(many_callers_at_once)
{
    pthread_t callers[8];
    int32_t bad = 0;
    for (int i = 0; i < 8; i++) {
        REQUIRE(!pthread_create(&callers[i], NULL, pool_caller, &bad));
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(callers[i], NULL);
    }
    CHECK_EQ_INT(bad, 0);
    tci_pool_shutdown();
}

TEST(workers_end_with_the_last_user)
{
#ifdef _OPENMP
    SKIP("OpenMP owns the threads");
#endif
    int before = pool_count_threads();
    if (!before) {
        SKIP("no /proc");
    }
    tci_pool_retain();
    tci_pool_retain();
    pool_check(NULL, 3, 30);
    CHECK_EQ_INT(pool_count_threads(), before + 2);
    tci_pool_release();
    CHECK_EQ_INT(pool_count_threads(), before + 2);
    tci_pool_release();
    CHECK(pool_threads_become(before));
    pool_check(NULL, 3, 30);
    tci_pool_shutdown();
    CHECK(pool_threads_become(before));
    tci_pool_shutdown();
}

TEST(a_forked_child_works_alone)
{
    pool_check(NULL, 3, 30);
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        pool_seen seen = {.n = 30, .threads = 3};
        tci_pool_run(NULL, 3, 30, 1, pool_body, &seen);
        int bad = seen.bad;
        for (int i = 0; i < 30; i++) {
            bad += seen.times[i] != 1;
        }
        tci_pool_shutdown();
        tct_exit(bad != 0);
    }
    int code = -1;
    waitpid(child, &code, 0);
    CHECK_EQ_INT(code, 0);
    pool_check(NULL, 3, 30);
    tci_pool_shutdown();
}

typedef struct pool_host {
    int calls, tasks;
} pool_host;

static void pool_host_for(void *user, int n, void (*task)(void *arg, int i), void *arg)
{
    pool_host *host = user;
    host->calls++;
    for (int i = n - 1; i >= 0; i--) { /* any order is allowed */
        host->tasks++;
        task(arg, i);
    }
}

TEST(the_hosts_job_system_replaces_the_pool)
{
    pool_host host = {0, 0};
    tc_options o = {.parallel_for = pool_host_for, .parallel_user = &host};
    int before = pool_count_threads();
    pool_check(&o, 4, 100);
    CHECK_EQ_INT(host.calls, 1);
    CHECK_EQ_INT(host.tasks, 4);
    pool_check(&o, 1, 100);
    CHECK_EQ_INT(host.calls, 1);
    CHECK_EQ_INT(pool_count_threads(), before);
}

TEST(threads_come_from_options_first)
{
    tc_options o = {.threads = 7};
    CHECK_EQ_INT(tci_pool_threads(&o), 7);
    CHECK(tci_pool_threads(NULL) >= 1);
}

static void pool_rounding_body(void *arg, int worker, int64_t begin, int64_t end)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        volatile double one = 1;
        volatile double tiny = 0x1p-60;
        ((int *)arg)[i] = one + tiny > 1;
    }
}

TEST(bodies_run_in_the_default_float_environment)
{
    int modes[16];
    REQUIRE(fesetround(FE_UPWARD) == 0);
    for (int threads = 1; threads <= 3; threads++) {
        memset(modes, 0xff, sizeof(modes));
        tci_pool_run(NULL, threads, 16, 1, pool_rounding_body, modes);
        for (int i = 0; i < 16; i++) {
            CHECK_EQ_INT(modes[i], 0);
        }
        CHECK_EQ_INT(fegetround(), FE_UPWARD);
    }
    fesetround(FE_TONEAREST);
    tci_pool_shutdown();
}

#if defined(__x86_64__)
static uint32_t pool_mxcsr(void)
{
    uint32_t csr;
    __asm__ __volatile__("stmxcsr %0" : "=m"(csr));
    return csr;
}

static void pool_mxcsr_body(void *arg, int worker, int64_t begin, int64_t end)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        ((uint32_t *)arg)[i] = pool_mxcsr() & ~0x3fu;
    }
}

TEST(flushing_of_subnormals_is_off_inside_and_restored)
{
    uint32_t host = 0x9fc0; /* FTZ, DAZ, exceptions masked */
    uint32_t usual = 0x1f80;
    uint32_t modes[8];
    __asm__ __volatile__("ldmxcsr %0" : : "m"(host));
    tci_pool_run(NULL, 2, 8, 1, pool_mxcsr_body, modes);
    uint32_t after = pool_mxcsr();
    __asm__ __volatile__("ldmxcsr %0" : : "m"(usual));
    for (int i = 0; i < 8; i++) {
        CHECK_EQ_INT(modes[i], 0x1f80);
    }
    CHECK_EQ_INT(after & ~0x3fu, host);
    tci_pool_shutdown();
}
#endif

TEST_MAIN
