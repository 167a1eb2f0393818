/* The cache in memory: its cap, and how long modules stay loaded. Needs a compiler. */
#include "cache.h"

#include <pthread.h>

/* ---- the cap of the memory cache ---- */

TEST(the_memory_cache_keeps_to_its_cap)
{
    begin();
    enum { PROGRAMS = 60, HELD = 5 };
    tc_options o = default_options();
    o.backend = "interp";
    o.no_disk_cache = true;
    o.memory_cache_bytes = 1 << 20;
    tc_ctx *ctx;
    tc_program *held[HELD];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_stats before = stats_now(ctx);
    CHECK_EQ_INT(before.memory_entries, 0);
    CHECK_EQ_INT(before.memory_bytes, 0);
    for (int i = 0; i < PROGRAMS; i++) {
        tc_program *f;
        REQUIRE(tc_compile(expression(ctx, i), &f) == TC_OK);
        if (i < HELD) {
            held[i] = f;
        } else {
            tc_program_free(f);
        }
        CHECK(stats_now(ctx).memory_bytes <= o.memory_cache_bytes);
    }
    tc_stats after = stats_now(ctx);
    CHECK(after.memory_entries >= HELD && after.memory_entries < PROGRAMS);
    CHECK_EQ_INT(after.memory_entries + after.memory_evictions - before.memory_evictions, PROGRAMS);
    CHECK(attempt(&o, PROGRAMS - 1, false).used.memory_hits == 1); /* used last */
    CHECK(attempt(&o, 0, false).used.memory_hits == 1);            /* in use, so kept */
    CHECK(attempt(&o, HELD, false).used.memory_hits == 0);         /* used longest ago */
    o.memory_cache_bytes = -1;
    CHECK_EQ_INT(attempt(&o, PROGRAMS, false).used.memory_hits, 0);
    CHECK_EQ_INT(stats_now(ctx).memory_entries, HELD); /* only what programs use */
    for (int i = 0; i < HELD; i++) {
        CHECK(run_is_correct(held[i], i));
        tc_program_free(held[i]);
    }
    CHECK_EQ_INT(stats_now(ctx).memory_entries, 0);
    CHECK_EQ_INT(stats_now(ctx).memory_bytes, 0);
    tc_ctx_free(ctx);
    end();
}

/* Native code: what is dropped is unloaded, but for modules that other programs share. */
TEST(modules_live_as_long_as_their_programs)
{
    begin();
    enum { PROGRAMS = 6 };
    tc_options o = default_options();
    o.no_disk_cache = true;
    o.memory_cache_bytes = -1;
    tc_ctx *ctx;
    tc_program *f[PROGRAMS];
    tc_job jobs[PROGRAMS];
    tc_tensor x[PROGRAMS], y[PROGRAMS];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < PROGRAMS; i++) { /* all in one module */
        y[i] = x[i] = tc_input(ctx, "x", TC_F32, COUNT);
        for (int k = 0; k <= i; k++) {
            y[i] = tc_neg(tc_add(y[i], x[i]));
        }
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &f[i];
    }
    CHECK_EQ_INT(tc_compile_many(jobs, PROGRAMS, NULL), TC_OK);
    int64_t all = stats_now(ctx).memory_bytes;
    for (int i = 0; i < PROGRAMS; i++) {
        CHECK(run_is_correct(f[PROGRAMS - 1], PROGRAMS - 1));
        CHECK(run_is_correct(f[i], i));
        CHECK_EQ_INT(stats_now(ctx).memory_entries, PROGRAMS - i);
        CHECK(stats_now(ctx).memory_bytes > 0);
        tc_program_free(f[i]);
        CHECK(stats_now(ctx).memory_bytes < all);
    }
    CHECK_EQ_INT(stats_now(ctx).memory_bytes, 0);
    tc_ctx_free(ctx);
    end();
}

static void *compile_under_pressure(void *arg)
{
    tc_options o = default_options();
    bool good = true;
    o.no_disk_cache = true;
    o.memory_cache_bytes = 60000;
    for (int i = 0; i < 60 && good; i++) {
        o.backend = i % 4 ? "interp" : "cpu";
        int which = i % 4 ? i * 5 % 12 : i / 4 % 3;
        outcome r = attempt(&o, which, false);
        good = r.status == TC_OK && r.correct;
    }
    return good ? arg : NULL;
}

TEST(threads_may_share_a_memory_cache_that_is_too_small)
{
    begin();
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, compile_under_pressure, dir) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result != NULL);
    }
    end();
}

TEST_MAIN
