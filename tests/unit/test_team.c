/* tests/unit/test_team.c - runs on the threads of an OpenMP runtime that the process has loaded. */
#include "inside.h"
#include "tc_test.h"

#include <dlfcn.h>
#include <pthread.h>

typedef struct team_seen {
    int (*in_parallel)(void); /* the runtime's */
    int32_t tasks, inside;    /* atomic: all, and those on threads of the team */
} team_seen;

static void team_body(void *arg, int worker, int64_t begin, int64_t end)
{
    team_seen *seen = arg;
    (void)worker;
    __atomic_add_fetch(&seen->tasks, (int32_t)(end - begin), __ATOMIC_RELAXED);
    __atomic_add_fetch(&seen->inside, seen->in_parallel() ? (int32_t)(end - begin) : 0,
                       __ATOMIC_RELAXED);
}

/* The number of 100 tasks that the runtime's threads did; -1: the machine has no runtime. */
static int team_run(const tc_options *o, int threads)
{
    static void *runtime;
    static int (*in_parallel)(void);
    static void (*set_threads)(int);
    if (!runtime) {
        runtime = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!runtime) {
            return -1;
        }
        *(void **)&in_parallel = dlsym(runtime, "omp_in_parallel");
        *(void **)&set_threads = dlsym(runtime, "omp_set_num_threads");
        set_threads(4);
    }
    team_seen seen = {.in_parallel = in_parallel};
    tci_pool_run(o, threads, 100, 1, team_body, &seen);
    CHECK_EQ_INT(seen.tasks, 100);
    return seen.inside;
}

#if !defined(__linux__) || defined(__SANITIZE_THREAD__) || defined(_OPENMP)
#define TEAM_NONE "the pool takes no team that it finds"
#endif

TEST(a_team_that_the_process_has_does_the_work)
{
#ifdef TEAM_NONE
    SKIP(TEAM_NONE);
#endif
    int inside = team_run(NULL, 4);
    if (inside < 0) {
        SKIP("no libgomp");
    }
    CHECK_EQ_INT(inside, 100);
    for (int threads = 2; threads <= 8; threads++) { /* a team of half the threads is used too */
        for (int round = 0; round < 50; round++) {
            CHECK_EQ_INT(team_run(NULL, threads), 100);
        }
    }
}

TEST(a_small_team_or_spinning_that_the_options_ask_for_leaves_work_to_the_pool)
{
    tc_options asked = {.spin_us = 50};
    if (team_run(NULL, 2) < 0) {
        SKIP("no libgomp");
    }
#ifdef TEAM_NONE
    SKIP(TEAM_NONE);
#endif
    CHECK_EQ_INT(team_run(NULL, 9), 0);
    CHECK_EQ_INT(team_run(&asked, 4), 0);
    tci_pool_shutdown();
}

static void *team_elsewhere(void *inside)
{
    *(int *)inside = team_run(NULL, 4);
    return NULL;
}

TEST(threads_but_the_first_use_the_pool)
{
    pthread_t thread;
    int inside = team_run(NULL, 2);
    if (inside < 0) {
        SKIP("no libgomp");
    }
#ifdef TEAM_NONE
    SKIP(TEAM_NONE);
#endif
    REQUIRE(!pthread_create(&thread, NULL, team_elsewhere, &inside));
    pthread_join(thread, NULL);
    CHECK_EQ_INT(inside, 0);
    tci_pool_shutdown();
}

/* A loop of the runtime's that runs tc on each of its threads. */
static void team_loop(void *arg)
{
    team_seen *seen = arg;
    tci_pool_run(NULL, 4, 100, 1, team_body, seen);
}

TEST(runs_within_a_loop_of_the_runtimes_work_alone)
{
#ifdef TEAM_NONE
    SKIP(TEAM_NONE);
#endif
    if (team_run(NULL, 4) < 0) {
        SKIP("no libgomp");
    }
    void *runtime = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    *(void **)&parallel = dlsym(runtime, "GOMP_parallel");
    team_seen seen = {0};
    *(void **)&seen.in_parallel = dlsym(runtime, "omp_in_parallel");
    parallel(team_loop, &seen, 4, 0);
    CHECK_EQ_INT(seen.tasks, 400);
    tci_pool_shutdown();
}

TEST_MAIN
