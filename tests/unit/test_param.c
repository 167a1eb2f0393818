/* tests/unit/test_param.c - parameters that several runs read and change: a run that fails leaves
 * them as they were, and whoever reads them finds what one run left. Threads; written to be run
 * under a race detector too. */
#ifndef __clang__
#pragma GCC optimize("O0") /* the whole library is in this file */
#endif
#include <pthread.h>

/* What the library takes of locks and memory. */
static _Atomic long locks_taken;
static int counted_lock(pthread_mutex_t *lock)
{
    locks_taken++;
    return pthread_mutex_lock(lock);
}
#define pthread_mutex_lock counted_lock
#define TCI_TEST_ALLOC
#define TC_IMPLEMENTATION
#include "tc.h"
#undef pthread_mutex_lock
#include "tc_test.h"

#include "assertions.h"
#include "same.h"
#include "updates.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NO_BUFS ((tc_bufs){NULL, 0})

static tc_ctx *make(const char *backend)
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend, .threads = 1, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static tc_program *compile(tc_ctx *ctx, tc_tensors in, tc_tensors out)
{
    tc_program *f = NULL;
    CHECK_MSG(tc_compile_fn(in, out, NULL, &f) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(f);
    return f;
}

static tc_tensor filled(tc_ctx *ctx, float v)
{
    return tc_param(ctx, ((float[8]){v, v, v, v, v, v, v, v}), TC_F32, 8);
}

static bool all_are(tc_tensor t, int n, float v)
{
    static float now[1 << 14];
    bool same = tc_read(t, now, n) == TC_OK;
    for (int i = 0; i < n && same; i++) {
        same = now[i] == v;
    }
    return same;
}

/* ---- new values over the old ---- */

static void check_updates(const char *backend)
{
    tc_ctx *ctx = make(backend);
    for (int i = 0; i < TCI_COUNT(test_update_sizes); i++) {
        test_update_in_place(ctx, test_update_sizes[i]);
    }
    test_update_at_indices(ctx);
    test_update_rings(ctx, 4);
    tc_ctx_free(ctx);
}

/* Processor time of the shortest of some runs that set one row of a ring of so many. */
static double seconds_of_row(int n)
{
    enum { K = 64 };
    static float row[K];
    tc_ctx *ctx = make("interp");
    tc_tensor ring = tc_param(ctx, NULL, TC_F32, n, K), at = tc_input(ctx, "at", TC_I64, 1);
    tc_tensor in = tc_input(ctx, "row", TC_F32, 1, K);
    tc_tensor now = tc_index_put(ring, TC_TENSORS(at), in, false);
    tc_tensor sum = tc_sum(tc_index_select(now, 0, at), TC_ALL, false);
    tc_program *f = compile(ctx, TC_TENSORS(at, in), TC_TENSORS(sum, tc_assign(ring, now)));
    double best = 1;
    for (int64_t i = 0; i < 40; i++) {
        float got;
        clock_t begin = clock();
        for (int k = 0; k < 4; k++) {
            CHECK_EQ_INT(
                tc_run(f, TC_BUFS(TC_BUF(&i, 1), TC_BUF(row, K)), TC_BUFS(TC_BUF(&got, 1))), TC_OK);
        }
        best = TCI_MIN(best, (double)(clock() - begin) / CLOCKS_PER_SEC);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return best;
}

/* A ring of megabytes is not copied for the sake of one row. */
TEST(an_update_costs_what_changes)
{
    double small = seconds_of_row(64), large = seconds_of_row(32768);
    CHECK_MSG(large < 1e-4 + 20 * small, "%g s of 32768 rows, %g s of 64", large, small);
}

TEST(updates_overwrite_parameters_interp)
{
    check_updates("interp");
}
TEST(updates_overwrite_parameters_cpu)
{
    check_updates("cpu");
}

/* ---- runs that fail ---- */

/* Assignments that could be written over the old value: elementwise, turned, and by a sum. */
static tc_tensor updates(tc_tensor w, tc_tensor row, int form)
{
    return form == 0   ? tc_add(w, row)
           : form == 1 ? tc_mul(tc_flip(w, 0), tc_add(row, 1))
                       : tc_add(w, tc_sum(row, TC_ALL, false));
}

static void check_failed_runs(const char *backend)
{
    for (int form = 0; form < 3; form++) {
        tc_ctx *ctx = make(backend);
        tc_tensor w = filled(ctx, 2), e = filled(ctx, 3);
        tc_tensor index = tc_input(ctx, "index", TC_I64, 8), row = tc_gather(e, 0, index);
        tc_tensor other = filled(ctx, 1);
        tc_program *f = compile(ctx, TC_TENSORS(index),
                                TC_TENSORS(tc_assign(w, updates(w, row, form)),
                                           tc_assign(other, tc_add(other, 1))));
        int64_t good[8] = {0}, bad[8] = {0, 1, 2, 99};
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(bad, 8)), NO_BUFS), TC_ERR_INDEX);
        CHECK(all_are(w, 8, 2) && all_are(other, 8, 1));
        tc_tensor again = tc_copy_in(ctx, bad, TC_I64, 8);
        CHECK_EQ_INT(tc_eval(tc_assign(w, tc_gather(w, 0, again))), TC_ERR_INDEX);
        CHECK(all_are(w, 8, 2));
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(good, 8)), NO_BUFS), TC_OK);
        CHECK(all_are(w, 8, form == 0 ? 5 : form == 1 ? 8 : 26) && all_are(other, 8, 2));
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(bad, 8)), NO_BUFS), TC_ERR_INDEX);
        CHECK(all_are(w, 8, form == 0 ? 5 : form == 1 ? 8 : 26) && all_are(other, 8, 2));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* An index that is read at another one: it is unknown before the run is under way. */
TEST(updates_by_computed_indices_are_kept_apart)
{
    tc_ctx *ctx = make("interp");
    tc_tensor w = filled(ctx, 2), e = filled(ctx, 3);
    tc_tensor index = tc_input(ctx, "index", TC_I64, 8);
    tc_tensor second = tc_gather(tc_mul(index, 2), 0, index);
    tc_program *f = compile(ctx, TC_TENSORS(index),
                            TC_TENSORS(tc_assign(w, tc_add(w, tc_gather(e, 0, second)))));
    int64_t good[8] = {0, 1, 2, 3}, bad[8] = {0, 1, 2, 3, 4};
    CHECK(!f->effects[0].over_old);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(bad, 8)), NO_BUFS), TC_ERR_INDEX);
    CHECK(all_are(w, 8, 2));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(good, 8)), NO_BUFS), TC_OK);
    CHECK(all_are(w, 8, 5));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_failed_run_changes_no_parameter_interp)
{
    check_failed_runs("interp");
}
TEST(a_failed_run_changes_no_parameter_cpu)
{
    check_failed_runs("cpu");
}

static void check_failed_assertions(const char *backend)
{
    tc_ctx *ctx = make(backend);
    test_failed_assertions(ctx);
    test_failed_assertions_of_captured(ctx);
    tc_ctx_free(ctx);
}

TEST(a_failed_assertion_changes_no_parameter_interp)
{
    check_failed_assertions("interp");
}
TEST(a_failed_assertion_changes_no_parameter_cpu)
{
    check_failed_assertions("cpu");
}

/* ---- what a run costs ---- */

static void run_often(tc_program *f, tc_bufs in, tc_bufs out, long *locks, long *allocations)
{
    for (int i = 0; i < 20; i++) {
        long lock = locks_taken, allocation = tci_test_alloc_count;
        CHECK_EQ_INT(tc_run(f, in, out), TC_OK);
        *locks = locks_taken - lock;
        *allocations = tci_test_alloc_count - allocation;
    }
}

TEST(only_runs_with_parameters_lock_and_none_allocates)
{
    float x[8] = {0}, y[8];
    long locks, allocations;
    tc_ctx *ctx = make("interp");
    tc_tensor in = tc_input(ctx, "x", TC_F32, 8), w = filled(ctx, 1), v = filled(ctx, 1);
    tc_program *plain = compile(ctx, TC_TENSORS(in), TC_TENSORS(tc_add(in, 1)));
    tc_program *reads = compile(ctx, TC_TENSORS(in), TC_TENSORS(tc_add(in, w)));
    tc_program *over = compile(ctx, TC_TENSORS(), TC_TENSORS(tc_assign(w, tc_add(w, 1))));
    tc_program *turns = compile(ctx, TC_TENSORS(),
                                TC_TENSORS(tc_assign(v, tc_flip(tc_add(v, w), 0))));
    run_often(plain, TC_BUFS(TC_BUF(x, 8)), TC_BUFS(TC_BUF(y, 8)), &locks, &allocations);
    CHECK(locks == 0 && allocations == 0);
    run_often(reads, TC_BUFS(TC_BUF(x, 8)), TC_BUFS(TC_BUF(y, 8)), &locks, &allocations);
    CHECK(locks == 2 && allocations == 0);
    run_often(over, NO_BUFS, NO_BUFS, &locks, &allocations);
    CHECK(locks == 2 && allocations == 0);
    CHECK(all_are(w, 8, 21));
    CHECK(over->captured[0]->param->spares == NULL); /* one value, written over */
    run_often(turns, NO_BUFS, NO_BUFS, &locks, &allocations);
    CHECK(locks == 2 && allocations == 0);
    CHECK(all_are(v, 8, 1 + 20 * 21));
    tc_program_free(plain);
    tc_program_free(reads);
    tc_program_free(over);
    tc_program_free(turns);
    tc_ctx_free(ctx);
}

/* Without memory for the new value nothing changes, and with it all goes on. */
TEST(a_run_that_finds_no_memory_changes_no_parameter)
{
    tc_ctx *ctx = make("interp");
    tc_tensor v = filled(ctx, 1), w = filled(ctx, 2);
    tc_program *turns = compile(
        ctx, TC_TENSORS(), TC_TENSORS(tc_assign(v, tc_flip(w, 0)), tc_assign(w, tc_flip(v, 0))));
    int n_failed = 0;
    for (tc_status status = TC_ERR_MEMORY; status; n_failed += status != TC_OK) {
        tci_test_alloc_count = 0;
        tci_test_alloc_fail_at = n_failed + 1;
        status = tc_run(turns, NO_BUFS, NO_BUFS);
        tci_test_alloc_fail_at = 0;
        REQUIRE(status == TC_OK || status == TC_ERR_MEMORY);
        CHECK(all_are(v, 8, status ? 1 : 2) && all_are(w, 8, status ? 2 : 1));
    }
    CHECK(n_failed >= 3); /* a call, two values */
    tc_program_free(turns);
    tc_ctx_free(ctx);
}

/* ---- runs that meet ---- */

typedef struct host {
    tc_program *other;
    tc_status status;
    float lo, hi;
} host;

/* The host's parallel_for: while the run waits for it, another program is run. */
static void host_parallel(void *user, int n, void (*task)(void *arg, int i), void *arg)
{
    host *h = user;
    for (int i = 0; i < n; i++) {
        task(arg, i);
        if (i == 0 && h->other) {
            tc_program *f = h->other;
            h->other = NULL;
            h->status = tc_run(f, NO_BUFS,
                               f->n_outputs ? TC_BUFS(TC_BUF(&h->lo, 1), TC_BUF(&h->hi, 1))
                                            : NO_BUFS);
        }
    }
}

enum { LARGE = 1 << 14 };

static tc_tensor large(tc_ctx *ctx)
{
    static float zero[LARGE];
    return tc_param(ctx, zero, TC_F32, LARGE);
}

static tc_tensors extremes(tc_tensor t, tc_tensor *list)
{
    list[0] = tc_min(t, TC_ALL, false);
    list[1] = tc_max(t, TC_ALL, false);
    return (tc_tensors){list, 2};
}

/* In the middle of a run that changes p, one that reads it and others that change it. */
TEST(runs_in_the_middle_of_another)
{
    host h = {NULL, TC_OK, -1, -1};
    tc_tensor two[2];
    tc_options o = {.backend = "interp",
                    .threads = 2,
                    .parallel_for = host_parallel,
                    .parallel_user = &h};
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor p = large(ctx);
    tc_program *change = compile(ctx, TC_TENSORS(), TC_TENSORS(tc_assign(p, tc_add(p, 1))));
    tc_program *other = compile(ctx, TC_TENSORS(), TC_TENSORS(tc_assign(p, tc_mul(p, 2))));
    tc_program *reader = compile(ctx, TC_TENSORS(), extremes(p, two));
    h.other = other;
    CHECK_EQ_INT(tc_run(change, NO_BUFS, NO_BUFS), TC_OK);
    CHECK_MSG(!h.other, "the run asked for no threads");
    CHECK_EQ_INT(h.status, TC_ERR_BUSY);
    CHECK_HAS(tc_error(other), "another run changes a parameter");
    h.other = reader;
    CHECK_EQ_INT(tc_run(change, NO_BUFS, NO_BUFS), TC_OK);
    CHECK_EQ_INT(h.status, TC_OK);
    CHECK_MSG(h.lo == 1 && h.hi == 1, "%g, %g", (double)h.lo, (double)h.hi);
    CHECK_EQ_INT(tc_run(other, NO_BUFS, NO_BUFS), TC_OK);
    CHECK(all_are(p, LARGE, 4));
    tc_program_free(change);
    tc_program_free(other);
    tc_program_free(reader);
    tc_ctx_free(ctx);
}

typedef struct job {
    tc_program *f;
    int runs;
    int busy, failed, torn, back; /* counts */
} job;

static void *keep_changing(void *arg)
{
    job *j = arg;
    for (int done = 0; done < j->runs && !j->failed;) {
        tc_status status = tc_run(j->f, NO_BUFS, NO_BUFS);
        done += status == TC_OK;
        j->busy += status == TC_ERR_BUSY;
        j->failed += status != TC_OK && status != TC_ERR_BUSY;
    }
    return NULL;
}

/* Of p all elements are equal, and so are those of q, and both: a run that changes one changes the
 * other by as much. */
static void *keep_reading(void *arg)
{
    job *j = arg;
    float last = 0;
    for (int i = 0; i < j->runs; i++) {
        float v[4] = {0};
        tc_status status = tc_run(j->f, NO_BUFS,
                                  TC_BUFS(TC_BUF(&v[0], 1), TC_BUF(&v[1], 1), TC_BUF(&v[2], 1),
                                          TC_BUF(&v[3], 1)));
        j->failed += status != TC_OK;
        j->torn += v[0] != v[1] || v[0] != v[2] || v[0] != v[3];
        j->back += v[0] < last;
        last = v[0];
    }
    return NULL;
}

static void check_threads(const char *backend)
{
    enum { RUNS = 300, SIZE = 4096 };
    static float zero[SIZE], now[SIZE];
    tc_ctx *ctx = make(backend);
    tc_tensor p = tc_param(ctx, zero, TC_F32, SIZE), q = tc_param(ctx, zero, TC_F32, SIZE), ends[4];
    extremes(p, ends);
    extremes(q, ends + 2);
    tc_tensor one = tc_assign(p, tc_add(p, 1)), two = tc_assign(q, tc_flip(tc_add(q, 1), 0));
    job jobs[4] = {{.f = compile(ctx, TC_TENSORS(), TC_TENSORS(one, two))},
                   {.f = compile(ctx, TC_TENSORS(), TC_TENSORS(two, one))},
                   {.f = compile(ctx, TC_TENSORS(), (tc_tensors){ends, 4})}};
    pthread_t threads[4];
    jobs[3].f = jobs[2].f;
    for (int i = 0; i < 4; i++) {
        jobs[i].runs = RUNS;
        REQUIRE(!pthread_create(&threads[i], NULL, i < 2 ? keep_changing : keep_reading, &jobs[i]));
    }
    for (int i = 0; i < 50; i++) { /* the thread of the context reads as well */
        int differ = 0;
        CHECK_EQ_INT(tc_read(i % 2 ? p : q, now, SIZE), TC_OK);
        for (int k = 1; k < SIZE; k++) {
            differ += now[k] != now[0];
        }
        CHECK_EQ_INT(differ, 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(jobs[i].failed, 0);
        CHECK_EQ_INT(jobs[i].torn, 0);
        CHECK_EQ_INT(jobs[i].back, 0);
    }
    CHECK(all_are(p, SIZE, 2 * RUNS) && all_are(q, SIZE, 2 * RUNS)); /* no update is lost */
    tc_program_free(jobs[0].f);
    tc_program_free(jobs[1].f);
    tc_program_free(jobs[2].f);
    tc_ctx_free(ctx);
}

TEST(threads_read_and_change_parameters_interp)
{
    check_threads("interp");
}
TEST(threads_read_and_change_parameters_cpu)
{
    check_threads("cpu");
}

/* ---- fork ---- */

/* A child made in the middle of runs of another thread is not told that they still go on. */
TEST(a_forked_child_changes_parameters)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    SKIP("the sanitizer's own allocator may be locked in the child");
#endif
    tc_ctx *ctx = make("interp");
    tc_tensor p = large(ctx);
    job j = {.f = compile(ctx, TC_TENSORS(), TC_TENSORS(tc_assign(p, tc_add(p, 1)))), .runs = 3000};
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, keep_changing, &j));
    fflush(stdout);
    for (int i = 0; i < 20; i++) {
        int ended = -1;
        pid_t child = fork();
        if (child == 0) {
            float now[1];
            alarm(20); /* a deadlock ends it */
            bool good = tc_run(j.f, NO_BUFS, NO_BUFS) == TC_OK &&
                        tc_read(tc_slice(p, 0, 0, 1, 1), now, 1) == TC_OK;
            tct_exit(good ? 0 : 1);
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK_EQ_INT(ended, 0);
    }
    pthread_join(thread, NULL);
    CHECK_EQ_INT(j.busy + j.failed, 0);
    tc_program_free(j.f);
    tc_ctx_free(ctx);
}

/* A fork may happen while the queue's thread, having reached an event, still holds its lock. */
TEST(a_child_waits_for_no_lock_of_an_event_that_is_done)
{
    tc_ctx *ctx = make("interp");
    tc_tensor p = large(ctx);
    tc_program *f = compile(ctx, TC_TENSORS(), TC_TENSORS(tc_assign(p, tc_add(p, 1))));
    tc_queue *queue = NULL;
    tc_event *event = NULL;
    int ended = -1;
    REQUIRE(tc_queue_make(&queue) == TC_OK);
    REQUIRE(tc_run_async(f, queue, NO_BUFS, NO_BUFS, &event) == TC_OK);
    CHECK_EQ_INT(tc_event_wait(event), TC_OK);
    fflush(stdout);
    pthread_mutex_lock(&event->lock);
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* a deadlock ends it */
        tct_exit(tc_event_wait(event) == TC_OK ? 0 : 1);
    }
    pthread_mutex_unlock(&event->lock);
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    tc_event_free(event);
    tc_queue_free(queue);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
