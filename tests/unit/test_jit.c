/* tests/unit/test_jit.c - functions that specialize themselves: signatures, errors, threads. On the
 * interpreter; sizes are numbers. */
#include "inside.h"

#include <pthread.h>

#include "../null_backend.c"
#include "tc_test.h"

static const tc_options plain = {.backend = "interp", .threads = 1, .no_disk_cache = true};

/* y = x * (1 + static 0) + i, i the number of elements of the last axis */
typedef struct builder {
    int calls;
    tc_status status;
    bool wanders; /* another graph each time */
    bool foreign; /* the output is of this context */
    bool opens, unset;
    tc_ctx *other;
    tc_jit *self;
} builder;

static tc_status build_scaled(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                              void *user)
{
    builder *b = user;
    b->calls++;
    CHECK_EQ_INT(n_in, 1);
    CHECK_EQ_INT(n_out, 1);
    if (b->opens) {
        tc_scope_begin(ctx);
    }
    if (b->unset) {
        return TC_OK;
    }
    if (b->foreign) {
        out[0] = tc_full(b->other, 1, TC_F32, 3);
        return TC_OK;
    }
    if (b->self) {
        float x[2] = {0}, y[2];
        return tc_jit_run(b->self, NULL, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 2)));
    }
    out[0] = tc_add(tc_mul(in[0], 1 + tc_jit_static(ctx, 0)), tc_size(in[0], -1));
    for (int i = 1; b->wanders && i < b->calls; i++) {
        out[0] = tc_sin(out[0]);
    }
    return b->status;
}

static tc_jit *make_scaled(builder *b, const tc_jit_options *options)
{
    tc_jit_options o = options ? *options : (tc_jit_options){0};
    tc_jit *fn;
    o.options = &plain;
    REQUIRE(tc_jit_make(build_scaled, b, &o, &fn) == TC_OK);
    return fn;
}

static tc_status run_scaled(tc_jit *fn, const tc_statics *statics, int rows, int columns)
{
    float x[256], y[256];
    for (int i = 0; i < rows * columns; i++) {
        x[i] = (float)i;
    }
    tc_status status = tc_jit_run(fn, statics, TC_BUFS(TC_BUF_ND(x, rows, columns)),
                                  TC_BUFS(TC_BUF(y, rows * columns)));
    float by = 1 + (statics && statics->n ? (float)statics->items[0] : 0);
    for (int i = 0; i < rows * columns && !status; i++) {
        CHECK(y[i] == x[i] * by + (float)columns);
    }
    return status;
}

TEST(a_signature_is_built_once)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
        CHECK_EQ_INT(run_scaled(fn, NULL, 3, 2), TC_OK);
        CHECK_EQ_INT(run_scaled(fn, TC_STATICS(4), 2, 3), TC_OK);
        CHECK_EQ_INT(run_scaled(fn, TC_STATICS(5), 2, 3), TC_OK);
    }
    CHECK_EQ_INT(b.calls, 4);
    tc_jit_variant list[8];
    CHECK_EQ_INT(tc_jit_list(fn, list, 8), 4);
    CHECK_STR(list[0].signature, "f32[2, 3]");
    CHECK_STR(list[2].signature, "f32[2, 3], statics 4");
    CHECK(list[1].hits == 3 && list[1].interpreted && list[1].compile_ns > 0);
    tc_jit_free(fn);
}

TEST(dtypes_and_ranks_are_part_of_a_signature)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    float x[6] = {0}, y[6];
    double xd[6] = {1}, yd[6];
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 6)), TC_BUFS(TC_BUF(y, 6))), TC_OK);
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 1, 6)), TC_BUFS(TC_BUF(y, 6))), TC_OK);
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(xd, 6)), TC_BUFS(TC_BUF(yd, 6))), TC_OK);
    CHECK(yd[0] == 7);
    CHECK_EQ_INT(b.calls, 3);
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(y, 6))), TC_OK);
    CHECK_EQ_INT(b.calls, 3); /* without sizes: one axis */
    tc_jit_free(fn);
}

TEST(a_known_signature_takes_no_memory)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    CHECK_EQ_INT(run_scaled(fn, TC_STATICS(2), 4, 5), TC_OK);
    CHECK_EQ_INT(run_scaled(fn, NULL, 4, 6), TC_OK);
    long before = tci_test_alloc_count;
    for (int i = 0; i < 1000; i++) {
        run_scaled(fn, TC_STATICS(2), 4, 5);
        run_scaled(fn, NULL, 4, 6);
    }
    CHECK_EQ_INT(tci_test_alloc_count - before, 0);
    tc_jit_free(fn);
}

TEST(output_sizes_are_known_before_a_run)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    float *none = NULL;
    CHECK_EQ_INT(tc_jit_output_size(fn, NULL, TC_BUFS(TC_BUF_ND(none, 7, 9)), 0, -1), 9);
    CHECK_EQ_INT(tc_jit_output_size(fn, NULL, TC_BUFS(TC_BUF_ND(none, 7, 9)), 0, 0), 7);
    CHECK_EQ_INT(b.calls, 1);
    CHECK_EQ_INT(tc_jit_output_size(fn, NULL, TC_BUFS(TC_BUF_ND(none, 7, 9)), 0, 2), -1);
    CHECK_HAS(tc_error(fn), "axis 2 of output 0, which has rank 2");
    CHECK_EQ_INT(tc_jit_output_size(fn, NULL, TC_BUFS(TC_BUF_ND(none, 7, 9)), 1, 0), -1);
    CHECK_HAS(tc_error(fn), "given output 1, expected 0 to 0");
    tc_jit_free(fn);
}

TEST(warm_signatures_are_not_built_by_runs)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    float *none = NULL;
    tc_jit_signature warm[2] = {{.inputs = TC_BUFS(TC_BUF_ND(none, 2, 3))},
                                {TC_STATICS(1), TC_BUFS(TC_BUF_ND(none, 4, 4)), TC_OK}};
    CHECK_EQ_INT(tc_jit_warm(fn, warm, 2), TC_OK);
    CHECK_EQ_INT(b.calls, 2);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
    CHECK_EQ_INT(run_scaled(fn, TC_STATICS(1), 4, 4), TC_OK);
    CHECK_EQ_INT(b.calls, 2);
    CHECK_EQ_INT(tc_jit_warm(fn, NULL, 1), TC_ERR_ARGUMENT);
    warm[0].inputs = TC_BUFS(TC_BUF_ND(none, 2, -3));
    CHECK_EQ_INT(tc_jit_warm(fn, warm, 2), TC_ERR_BUFFER);
    CHECK(warm[0].status == TC_ERR_BUFFER && warm[1].status == TC_OK);
    tc_jit_free(fn);
}

TEST(dropped_specializations_are_built_anew)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    run_scaled(fn, NULL, 2, 3);
    run_scaled(fn, NULL, 2, 4);
    tc_jit_variant list[4];
    CHECK_EQ_INT(tc_jit_list(fn, list, 4), 2);
    CHECK_EQ_INT(tc_jit_drop(fn, list[0].id), TC_OK);
    CHECK_EQ_INT(tc_jit_drop(fn, list[0].id), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 4), TC_OK);
    CHECK_EQ_INT(b.calls, 2);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
    CHECK_EQ_INT(b.calls, 3);
    CHECK_EQ_INT(tc_jit_drop(fn, -1), TC_OK);
    CHECK_EQ_INT(tc_jit_list(fn, NULL, 0), 0);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
    tc_jit_free(fn);
}

/* The null backend counts launches, and computes nothing. */
TEST(specializations_are_those_of_the_device_of_their_function)
{
    tc_options o = plain;
    tc_jit *on[2];
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    builder b = {0};
    REQUIRE(tc_register_backend(&null_backend) == TC_OK);
    for (int i = 0; i < 2; i++) {
        o.backend = i ? "null" : "interp";
        REQUIRE(tc_jit_make(build_scaled, &b, (&(tc_jit_options){.options = &o}), &on[i]) == TC_OK);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            int launched = null_seen.launched;
            CHECK_EQ_INT(
                tc_jit_run(on[i], NULL, TC_BUFS(TC_BUF_ND(x, 2, 3)), TC_BUFS(TC_BUF(y, 6))), TC_OK);
            CHECK_EQ_INT(null_seen.launched - launched, i);
            CHECK(i || (y[0] == 4 && y[5] == 9));
        }
    }
    CHECK_EQ_INT(b.calls, 2);
    tc_jit_variant list[2];
    CHECK(tc_jit_list(on[0], list, 2) == 1 && list[0].interpreted && list[0].hits == 2);
    CHECK(tc_jit_list(on[1], list, 2) == 1 && !list[0].interpreted && list[0].hits == 2);
    tc_jit_free(on[0]);
    tc_jit_free(on[1]);
}

/* ---- padding ---- */

static tc_status build_padded(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                              void *user)
{
    (void)ctx, (void)n_in, (void)n_out;
    ++*(int *)user;
    out[0] = tc_add(tc_mul(in[0], 2), in[1]); /* [rows, 3] and [3] */
    out[1] = tc_sum(in[0], TC_AXES(0), false);
    return TC_OK;
}

TEST(buckets_pad_inputs_and_cut_outputs)
{
    tc_jit_axis fixed[2] = {{0, 1}, {1, 0}};
    int built = 0;
    tc_jit_options o = {.options = &plain,
                        .n_outputs = 2,
                        .bucket = TC_BUCKET_POW2,
                        .fixed_axes = fixed,
                        .n_fixed_axes = 2};
    tc_jit *fn;
    REQUIRE(tc_jit_make(build_padded, &built, &o, &fn) == TC_OK);
    float x[40 * 3], w[3] = {100, 200, 300}, y[40 * 3], sum[3], turned[120];
    for (int i = 0; i < 120; i++) {
        x[i] = (float)(i % 17);
    }
    long memory = 0;
    for (int round = 0; round < 2; round++) {
        memory = tci_test_alloc_count;
        for (int rows = 0; rows < 34; rows++) {
            REQUIRE(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, rows, 3), TC_BUF_ND(w, 3)),
                               TC_BUFS(TC_BUF_ND(y, rows, 3), TC_BUF_ND(sum, 3))) == TC_OK);
            float expected[3] = {0, 0, 0};
            for (int i = 0; i < rows * 3; i++) {
                CHECK(y[i] == x[i] * 2 + w[i % 3]);
                expected[i % 3] += x[i];
            }
            CHECK(!memcmp(sum, expected, sizeof(sum)));
        }
        memory = tci_test_alloc_count - memory;
    }
    CHECK_EQ_INT(built, 8); /* 0, 1, 2, 4, 8, 16, 32, 64 */
    CHECK_EQ_INT(memory, 0);
    float *none = NULL;
    tc_jit_signature warm = {.inputs = TC_BUFS(TC_BUF_ND(none, 27, 3), TC_BUF_ND(none, 3))};
    CHECK_EQ_INT(tc_jit_warm(fn, &warm, 1), TC_OK);
    CHECK_EQ_INT(built, 8);
    CHECK_EQ_INT(tc_jit_output_size(fn, NULL, warm.inputs, 0, 0), -1);
    int64_t sizes[2] = {5, 3}, strides[2] = {1, 8};
    for (int i = 0; i < 15; i++) {
        turned[i % 3 * 8 + i / 3] = x[i];
    }
    float *in = turned;
    CHECK_EQ_INT(tc_jit_run(fn, NULL,
                            TC_BUFS(TC_BUF_STRIDED(in, 2, sizes, strides), TC_BUF_ND(w, 3)),
                            TC_BUFS(TC_BUF_ND(y, 5, 3), TC_BUF_ND(sum, 3))),
                 TC_OK);
    CHECK(y[14] == x[14] * 2 + 300);
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 5, 3), TC_BUF_ND(w, 3)),
                            TC_BUFS(TC_BUF(y, 15), TC_BUF_ND(sum, 3))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(fn), "output 0: expected writable f32 memory with a size for each of 2");
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 5, 3), TC_BUF_ND(w, 3)),
                            TC_BUFS(TC_BUF_ND(y, 9, 3), TC_BUF_ND(sum, 3))),
                 TC_ERR_BUFFER);
    tc_jit_free(fn);
}

/* ---- misuse ---- */

TEST(a_build_that_fails_tells_why_and_leaves_nothing)
{
    builder b = {.status = TC_ERR_CANCELLED};
    tc_jit *fn = make_scaled(&b, NULL);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_ERR_CANCELLED);
    CHECK_HAS(tc_error(fn), "test_jit.c:");
    CHECK_HAS(tc_error(fn), "build returns 'cancelled'");
    CHECK_EQ_INT(tc_jit_list(fn, NULL, 0), 0);
    b.status = TC_OK;
    b.unset = true;
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(fn), "output 0 of 1 unset");
    b.unset = false;
    b.opens = true;
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(fn), "leaves a scope open");
    b.opens = false;
    b.foreign = true;
    REQUIRE(tc_ctx_make(&b.other, &plain) == TC_OK);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(fn), "of another context");
    tc_ctx_free(b.other);
    b.foreign = false;
    b.self = fn;
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_ERR_BUSY);
    CHECK_HAS(tc_error(fn), "'in use by another thread'");
    b.self = NULL;
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
    tc_jit_free(fn);
}

TEST(a_build_that_is_not_deterministic_is_found)
{
    builder b = {.wanders = true};
    tc_jit *fn = make_scaled(&b, &(tc_jit_options){.check = true, .name = "wanderer"});
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(fn), "tc_jit_run of wanderer");
    CHECK_HAS(tc_error(fn), "recorded two graphs");
    b.wanders = false;
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
    tc_jit_free(fn);
}

typedef struct wanderer {
    int calls;
    bool steady;
    enum { NUMBER, COUNT, COPIED, BORROWED, TURNED } kind;
    float memory[2][12];
} wanderer;

/* x [4, 3] with a number or memory that differ between two calls, unless it is steady */
static tc_status build_wanderer(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out,
                                int n_out, void *user)
{
    (void)n_in, (void)n_out;
    wanderer *w = user;
    int at = w->steady ? 0 : w->calls % 2;
    float *m = w->memory[w->calls++ % 2];
    const int64_t sizes[2] = {4, 3}, strides[2] = {1, 4};
    for (int i = 0; i < 12; i++) {
        m[i] = (float)i;
    }
    m[7] += (float)at; /* row-major element 7; of the transposed memory element [3, 1] */
    switch (w->kind) {
    case NUMBER: out[0] = tc_mul(in[0], 10.5 + at); break;
    case COUNT: out[0] = tc_add(tc_cast(in[0], TC_I32), 20 + at); break;
    case COPIED: out[0] = tc_add(in[0], tc_copy_in(ctx, m, TC_F32, 4, 3)); break;
    case BORROWED: out[0] = tc_add(in[0], tc_borrow(ctx, m, TC_F32, 4, 3)); break;
    case TURNED:
        out[0] = tc_add(in[0], tc_borrow_strided(ctx, m, TC_F32, 2, sizes, strides));
        break;
    }
    return TC_OK;
}

TEST(a_build_that_captures_other_numbers_or_memory_each_time_is_found)
{
    static const char *const texts[] = {"a number that was 10.5 once, 11.5 then (",
                                        "a number that was 20 once, 21 then (",
                                        "memory with an element 7 that was 7 once, 8 then (",
                                        "memory with an element 7 that was 7 once, 8 then (",
                                        "memory with an element 10 that was 7 once, 8 then ("};
    for (int kind = NUMBER; kind <= TURNED; kind++) {
        wanderer w = {.kind = kind};
        tc_jit_options o = {.options = &plain, .check = true};
        tc_jit *fn;
        float x[12] = {0};
        int32_t whole[12];
        float y[12];
        tc_bufs out = kind == COUNT ? TC_BUFS(TC_BUF(whole, 12)) : TC_BUFS(TC_BUF(y, 12));
        REQUIRE(tc_jit_make(build_wanderer, &w, &o, &fn) == TC_OK);
        CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 4, 3)), out), TC_ERR_ARGUMENT);
        CHECK_HAS(tc_error(fn), texts[kind]);
        CHECK_HAS(tc_error(fn), "test_jit.c:");
        w.steady = true; /* other memory with the same contents */
        CHECK_MSG(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 4, 3)), out) == TC_OK, "%s",
                  tc_error(fn));
        tc_jit_free(fn);
    }
}

TEST(buffers_that_make_no_signature_are_refused)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    float x[6] = {0}, y[6];
    void *untyped = x;
    int64_t huge[3] = {INT64_MAX, -1, INT64_MIN};
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF(untyped, 24)), TC_BUFS(TC_BUF(y, 6))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(fn), "no type");
    for (int i = 0; i < 3; i++) {
        tc_buf buf = TC_BUF_ND(x, huge[i]);
        CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(buf), TC_BUFS(TC_BUF(y, 6))), TC_ERR_BUFFER);
        CHECK_HAS(tc_error(fn), "expected 0 to 2^60");
    }
    int64_t large = (int64_t)1 << 59;
    CHECK(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, large, large)), TC_BUFS(TC_BUF(y, 6))));
    CHECK_EQ_INT(tc_jit_run(fn, TC_STATICS(INT64_MIN, INT64_MAX), TC_BUFS(TC_BUF(x, 6)),
                            TC_BUFS(TC_BUF(y, 6))),
                 TC_OK);
    tc_statics nowhere = {NULL, 2};
    CHECK_EQ_INT(tc_jit_run(fn, &nowhere, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(y, 6))),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(y, 6), TC_BUF(x, 6))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(fn), "given 2 outputs, expected at most 1");
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(y, 5))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(fn), "output 0: given 5 elements, expected 6");
    CHECK_EQ_INT(tc_jit_run(NULL, NULL, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(y, 6))),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_jit_drop(NULL, 0), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_jit_list(NULL, NULL, 0), -1);
    tc_jit_free(fn);
    tc_jit_free(NULL);
}

/* ---- threads ---- */

enum { JIT_THREADS = 32, JIT_ROUNDS = 60 };

typedef struct runner {
    pthread_t thread;
    tc_jit *fn;
    unsigned seed;
    int wrong;
} runner;

static void *run_and_drop(void *arg)
{
    runner *r = arg;
    unsigned at = r->seed;
    float x[64], y[64];
    for (int round = 0; round < JIT_ROUNDS; round++) {
        at = at * 1664525u + 1013904223u;
        int rows = 1 + (int)(at >> 28) % 4, columns = 1 + (int)(at >> 24) % 4;
        int64_t by = (at >> 20) % 3;
        for (int i = 0; i < rows * columns; i++) {
            x[i] = (float)(i + round);
        }
        if (tc_jit_run(r->fn, TC_STATICS(by), TC_BUFS(TC_BUF_ND(x, rows, columns)),
                       TC_BUFS(TC_BUF(y, rows * columns)))) {
            r->wrong++;
            continue;
        }
        for (int i = 0; i < rows * columns; i++) {
            r->wrong += y[i] != x[i] * (float)(1 + by) + (float)columns;
        }
        if ((at >> 8) % 16 == 0) {
            tc_jit_variant list[4];
            int n = tc_jit_list(r->fn, list, 4);
            tc_jit_drop(r->fn, n > 0 ? list[(at >> 4) % 4 % (unsigned)(n < 4 ? n : 4)].id : -1);
        }
    }
    return NULL;
}

TEST(threads_run_while_specializations_are_dropped)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, &(tc_jit_options){.max_variants = 100});
    static runner runners[JIT_THREADS];
    for (int i = 0; i < JIT_THREADS; i++) {
        runners[i] = (runner){.fn = fn, .seed = (unsigned)i * 7919 + 1};
        REQUIRE(pthread_create(&runners[i].thread, NULL, run_and_drop, &runners[i]) == 0);
    }
    int wrong = 0;
    for (int i = 0; i < JIT_THREADS; i++) {
        pthread_join(runners[i].thread, NULL);
        wrong += runners[i].wrong;
    }
    CHECK_MSG(!wrong, "%d wrong: %s", wrong, tc_error(fn));
    tc_jit_free(fn);
}

typedef struct sleeper {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool builds, may_end;
    tc_jit *fn;
} sleeper;

/* x + 1; the second build waits until it may end */
static tc_status build_sleeping(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out,
                                int n_out, void *user)
{
    (void)n_in, (void)n_out;
    sleeper *s = user;
    out[0] = tc_add(in[0], 1);
    pthread_mutex_lock(&s->lock);
    s->builds = tc_jit_n_statics(ctx) > 0;
    pthread_cond_broadcast(&s->changed);
    while (s->builds && !s->may_end) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return TC_OK;
}

static void *run_sleeping(void *arg)
{
    sleeper *s = arg;
    float x[2] = {0}, y[2];
    tc_status status = tc_jit_run(s->fn, TC_STATICS(1), TC_BUFS(TC_BUF_ND(x, 2)),
                                  TC_BUFS(TC_BUF(y, 2)));
    return status ? s : NULL;
}

/* With a lock anywhere on the way this test would never end. */
TEST(runs_and_lists_do_not_wait_for_a_build)
{
    sleeper s = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    tc_jit_options o = {.options = &plain};
    pthread_t thread;
    void *failed;
    float x[2] = {1, 2}, y[2];
    REQUIRE(tc_jit_make(build_sleeping, &s, &o, &s.fn) == TC_OK);
    CHECK_EQ_INT(tc_jit_run(s.fn, NULL, TC_BUFS(TC_BUF_ND(x, 2)), TC_BUFS(TC_BUF(y, 2))), TC_OK);
    REQUIRE(pthread_create(&thread, NULL, run_sleeping, &s) == 0);
    pthread_mutex_lock(&s.lock);
    while (!s.builds) {
        pthread_cond_wait(&s.changed, &s.lock);
    }
    pthread_mutex_unlock(&s.lock);
    tc_jit_variant list[4];
    CHECK_EQ_INT(tc_jit_run(s.fn, NULL, TC_BUFS(TC_BUF_ND(x, 2)), TC_BUFS(TC_BUF(y, 2))), TC_OK);
    CHECK(y[0] == 2 && y[1] == 3);
    REQUIRE(tc_jit_list(s.fn, list, 4) == 1);
    CHECK_EQ_INT(list[0].hits, 2);
    pthread_mutex_lock(&s.lock);
    s.may_end = true;
    pthread_cond_broadcast(&s.changed);
    pthread_mutex_unlock(&s.lock);
    pthread_join(thread, &failed);
    CHECK(!failed);
    CHECK_EQ_INT(tc_jit_list(s.fn, NULL, 0), 2);
    tc_jit_free(s.fn);
}

/* ---- memory ---- */

TEST(memory_that_runs_out_leaves_the_function_usable)
{
    for (long at = 1, over = 0; !over; at++) {
        builder b = {0};
        long live = tci_test_alloc_live;
        tc_jit *fn = make_scaled(&b, NULL);
        CHECK_EQ_INT(run_scaled(fn, NULL, 1, 2), TC_OK);
        tci_test_alloc_count = 0;
        tci_test_alloc_fail_at = at;
        tc_status status = run_scaled(fn, TC_STATICS(1), 2, 3);
        status = status ? status : tc_jit_drop(fn, -1);
        over = tci_test_alloc_count < at;
        tci_test_alloc_fail_at = 0;
        CHECK_MSG(!status || status == TC_ERR_MEMORY, "request %ld: %s", at,
                  tc_status_text(status));
        CHECK_EQ_INT(run_scaled(fn, TC_STATICS(1), 2, 3), TC_OK);
        tc_jit_free(fn);
        tc_shutdown();
        CHECK_MSG(tci_test_alloc_live <= live + 2, "request %ld: %ld blocks, expected %ld", at,
                  (long)tci_test_alloc_live, live);
    }
}

TEST(weights_of_the_private_context_are_shared)
{
    builder b = {0};
    tc_jit *fn = make_scaled(&b, NULL);
    CHECK(tc_jit_ctx(fn) && !tc_jit_ctx(NULL));
    tc_tensor w = tc_full(tc_jit_ctx(fn), 2, TC_F32, 3);
    CHECK_EQ_INT(run_scaled(fn, NULL, 2, 3), TC_OK);
    float read[3];
    CHECK_EQ_INT(tc_read(w, read, 3), TC_OK); /* what was made before is still there */
    CHECK(read[2] == 2);
    CHECK_EQ_INT(tc_jit_static(tc_jit_ctx(fn), 0), 0);
    tc_jit_free(fn);
}

TEST_MAIN
