/* tests/unit/test_once.c - what a program computes once: which values, when again, by several
 * callers at a time, in instances of symbolic sizes; and that the bits are those of a program to
 * which the same memory is given in each run. On the interpreter, and on a device that only counts
 * what it launches. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "../null_backend.c"

#include "tc_test.h"

#include <math.h>
#include <pthread.h>

enum { ROWS = 6, FEW = 5, IN = 40, OUT = 24 };

typedef struct norm {
    float w[OUT * IN], mean[OUT], var[OUT], x[ROWS * IN];
} norm;

static tc_ctx *context(const char *backend)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.no_disk_cache = true;
    o.threads = 1;
    o.verify = true;
    CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_OK);
    return ctx;
}

static void fill(norm *m, int seed)
{
    float *all = (float *)m;
    for (size_t i = 0; i < sizeof(*m) / sizeof(float); i++) {
        all[i] = (float)((int)((i * 7919 + (size_t)seed * 31) % 1009) - 500) / 250;
    }
    for (int i = 0; i < OUT; i++) {
        m->var[i] = m->var[i] * m->var[i];
    }
}

/* x w' normalised: the weight's transposed copy and the scale depend on no input. */
static tc_tensor layer(tc_tensor x, tc_tensor w, tc_tensor mean, tc_tensor var)
{
    tc_tensor product = tc_matmul(x, tc_transpose(w, 0, 1));
    tc_tensor scale = tc_div(tc_exp(tc_neg(var)), tc_sqrt(tc_add(var, 1e-5)));
    return tc_mul(tc_sub(product, mean), scale);
}

static tc_program *compile_captured(tc_ctx *ctx, const norm *m, tc_tensor leaves[3])
{
    tc_program *f = NULL;
    leaves[0] = tc_borrow(ctx, m->w, TC_F32, OUT, IN);
    leaves[1] = tc_borrow(ctx, m->mean, TC_F32, OUT);
    leaves[2] = tc_borrow(ctx, m->var, TC_F32, OUT);
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, IN);
    CHECK_MSG(tc_compile(layer(x, leaves[0], leaves[1], leaves[2]), &f) == TC_OK, "%s",
              tc_error(ctx));
    return f;
}

static void run(tc_program *f, const float *x, float *y)
{
    CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, ROWS * IN)), TC_BUFS(TC_BUF(y, ROWS * OUT))) == TC_OK,
              "%s", tc_error(f));
}

/* The same, all of it given in the run. */
static void expect(tc_ctx *ctx, const norm *m, float *y)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, IN), w = tc_input(ctx, "w", TC_F32, OUT, IN);
    tc_tensor mean = tc_input(ctx, "m", TC_F32, OUT), var = tc_input(ctx, "v", TC_F32, OUT);
    REQUIRE(tc_compile(layer(x, w, mean, var), &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f,
                        TC_BUFS(TC_BUF(m->x, ROWS * IN), TC_BUF(m->w, OUT * IN),
                                TC_BUF(m->mean, OUT), TC_BUF(m->var, OUT)),
                        TC_BUFS(TC_BUF(y, ROWS * OUT))),
                 TC_OK);
    tc_program_free(f);
}

static bool same(const float *a, const float *b)
{
    return !memcmp(a, b, sizeof(float) * ROWS * OUT);
}

TEST(what_no_run_changes_is_computed_once)
{
    static norm m;
    float y[ROWS * OUT], want[ROWS * OUT];
    tc_tensor leaves[3];
    fill(&m, 1);
    tc_ctx *ctx = context("interp");
    tc_program *f = compile_captured(ctx, &m, leaves);
    REQUIRE(f != NULL);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 2); /* the transposed weight and the scale */
    CHECK_EQ_INT(info.n_steps, 3);
    CHECK_EQ_INT(info.kept_bytes, IN * OUT * 4 + (OUT * 4 + 63) / 64 * 64);
    expect(ctx, &m, want);
    run(f, m.x, y);
    CHECK(same(y, want));
    memset(m.var, 0, sizeof(m.var)); /* no call tells of it */
    m.w[0] += 1;
    run(f, m.x, y);
    CHECK(same(y, want));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_touch_computes_it_again)
{
    static norm m;
    float y[ROWS * OUT], want[ROWS * OUT];
    tc_tensor leaves[3];
    fill(&m, 2);
    tc_ctx *ctx = context("interp");
    tc_program *f = compile_captured(ctx, &m, leaves);
    tc_call *other = NULL;
    REQUIRE(f && tc_call_make(f, &other) == TC_OK);
    for (int round = 0; round < 4; round++) {
        expect(ctx, &m, want);
        run(f, m.x, y);
        CHECK(same(y, want));
        CHECK_EQ_INT(tc_run_call(other, TC_BUFS(TC_BUF(m.x, ROWS * IN)),
                                 TC_BUFS(TC_BUF(y, ROWS * OUT))),
                     TC_OK);
        CHECK(same(y, want));
        fill(&m, 3 + round);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ_INT(tc_touch(leaves[i]), TC_OK);
        }
    }
    tc_program_free(f);
    tc_call_free(other);
    tc_ctx_free(ctx);
}

/* ---- parameters ---- */

TEST(a_program_that_assigns_is_followed)
{
    static norm m;
    float y[ROWS * OUT], want[ROWS * OUT];
    fill(&m, 4);
    tc_ctx *ctx = context("interp");
    tc_program *eval = NULL, *train = NULL;
    tc_tensor w = tc_param(ctx, m.w, TC_F32, OUT, IN);
    tc_tensor mean = tc_borrow(ctx, m.mean, TC_F32, OUT), var = tc_borrow(ctx, m.var, TC_F32, OUT);
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, IN), rate = tc_input(ctx, "rate", TC_F32);
    tc_tensor loss = layer(x, w, mean, var);
    REQUIRE(tc_compile(loss, &eval) == TC_OK);
    tc_tensor step = tc_assign(w, tc_sub(w, tc_mul(w, rate)));
    REQUIRE(tc_compile_fn(TC_TENSORS(x, rate), TC_TENSORS(loss, step), NULL, &train) == TC_OK);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(eval, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 2);
    CHECK_EQ_INT(tc_program_get_info(train, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 1); /* the scale: it changes the weight itself */
    for (int round = 0; round < 3; round++) {
        float rates[1] = {0.25f};
        CHECK_EQ_INT(tc_read(w, m.w, OUT * IN), TC_OK);
        expect(ctx, &m, want);
        run(eval, m.x, y);
        CHECK(same(y, want));
        memset(y, 0, sizeof(y));
        CHECK_EQ_INT(tc_run(train, TC_BUFS(TC_BUF(m.x, ROWS * IN), TC_BUF(rates, 1)),
                            TC_BUFS(TC_BUF(y, ROWS * OUT))),
                     TC_OK);
        CHECK(same(y, want));
    }
    tc_program_free(eval);
    tc_program_free(train);
    tc_ctx_free(ctx);
}

/* ---- what stays in each run ---- */

static int count_once(tc_ctx *ctx, tc_tensors inputs, tc_tensor y)
{
    tc_program *f = NULL;
    tc_program_info info;
    tc_tensors outputs = {&y, 1};
    memset(&info, 0, sizeof(info));
    CHECK_MSG(tc_compile_fn(inputs, outputs, NULL, &f) == TC_OK, "%s", tc_error(ctx));
    if (f) {
        CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    }
    tc_program_free(f);
    return info.n_once;
}

TEST(what_pays_nothing_stays_in_each_run)
{
    static float data[IN], one[1];
    static int64_t at[IN];
    tc_ctx *ctx = context("interp");
    tc_tensor x = tc_input(ctx, "x", TC_F32, IN), w = tc_borrow(ctx, data, TC_F32, IN);
    tc_tensor rate = tc_borrow(ctx, one, TC_F32), index = tc_borrow(ctx, at, TC_I64, IN);
    tc_tensor half = tc_cast(w, TC_BF16), none = tc_exp(w);
    CHECK_EQ_INT(count_once(ctx, TC_TENSORS(x), tc_mul(x, tc_exp(w))), 1);
    CHECK_EQ_INT(count_once(ctx, TC_TENSORS(x), tc_mul(x, tc_cast(half, TC_F32))), 1);
    /* a product costs no more than what reads it; a copy in a wider type takes more bytes */
    CHECK_EQ_INT(count_once(ctx, TC_TENSORS(x), tc_add(x, tc_mul(w, 3))), 0);
    CHECK_EQ_INT(count_once(ctx, TC_TENSORS(x), tc_mul(tc_cast(x, TC_F64), tc_cast(w, TC_F64))), 0);
    /* one element */
    CHECK_EQ_INT(count_once(ctx, TC_TENSORS(x), tc_mul(x, tc_exp(rate))), 0);
    /* an index outside is told by each run */
    tc_tensor picked = tc_cumsum(tc_gather(w, 0, index), 0);
    CHECK_EQ_INT(count_once(ctx, TC_TENSORS(x), tc_mul(x, picked)), 0);
    /* an output, and a program without inputs */
    tc_program *f = NULL;
    tc_program_info info;
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(none, tc_mul(x, none)), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 0);
    tc_program_free(f);
    REQUIRE(tc_compile(tc_cumsum(tc_cumsum(none, 0), 0), &f) == TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Training on data that the program has captured: exp(data) does not change from step to step. */
TEST(a_program_of_effects_without_inputs_computes_once)
{
    static float data[IN];
    float loss, expected = 0;
    for (int i = 0; i < IN; i++) {
        data[i] = (float)i / IN;
    }
    tc_ctx *ctx = context("interp");
    tc_tensor w = tc_param(ctx, NULL, TC_F32, IN), x = tc_borrow(ctx, data, TC_F32, IN);
    tc_tensor error = tc_sum(tc_square(tc_sub(tc_exp(x), w)), TC_ALL, false);
    tc_tensor g, effects[TC_EFFECTS(1)];
    int n = 0;
    tc_program *f = NULL;
    tc_program_info info;
    REQUIRE(tc_grad(error, &w, 1, &g) == TC_OK);
    REQUIRE(tc_sgd(&w, &g, 1, 0.25, NULL, effects, &n) == TC_OK && n == 1);
    REQUIRE(tc_compile_fn(TC_TENSORS(), TC_TENSORS(error, effects[0]), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 1);
    for (int step = 0; step < 3; step++) { /* each halves the distance: the loss is a quarter */
        CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF(&loss, 1))), TC_OK);
        CHECK(step == 0 || fabsf(loss - expected / 4) <= 1e-5f * expected);
        expected = loss;
    }
    data[0] = 1;
    CHECK_EQ_INT(tc_touch(x), TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF(&loss, 1))), TC_OK);
    CHECK(loss > expected / 4 + 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Numbers of the program are captured with it: two programs of one code have their own. */
TEST(numbers_belong_to_the_program)
{
    static float data[IN] = {1, 2, 3}, x[IN] = {1, 1, 1};
    float y[2][IN];
    tc_ctx *ctx = context("interp");
    tc_tensor w = tc_borrow(ctx, data, TC_F32, IN), in = tc_input(ctx, "x", TC_F32, IN);
    for (int i = 0; i < 2; i++) {
        tc_program *f = NULL;
        tc_tensor scale = tc_exp(tc_mul(w, i ? 0.75 : 0.3));
        REQUIRE(tc_compile(tc_mul(in, scale), &f) == TC_OK);
        tc_program_info info;
        CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
        CHECK_EQ_INT(info.n_once, 1);
        CHECK_EQ_INT(info.from_memory, i);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, IN)), TC_BUFS(TC_BUF(y[i], IN))), TC_OK);
        tc_program_free(f);
    }
    CHECK_CLOSE(y[0][1], 1.8221188, 1e-6);
    CHECK_CLOSE(y[1][1], 4.4816891, 1e-6);
    tc_ctx_free(ctx);
}

TEST(what_is_kept_counts_as_memory)
{
    static norm m;
    tc_options o;
    tc_tensor leaves[3];
    memset(&o, 0, sizeof(o));
    o.memory_limit = IN * OUT * 4; /* the transposed weight alone takes that */
    tc_ctx *ctx = context("interp");
    tc_program *f = compile_captured(ctx, &m, leaves);
    tc_program_free(f);
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, IN);
    tc_tensor y = layer(x, leaves[0], leaves[1], leaves[2]);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f), TC_ERR_LIMIT);
    CHECK_HAS(tc_error(y), "memory_limit");
    tc_ctx_free(ctx);
}

/* ---- several programs ---- */

static int64_t kept_now(tc_ctx *ctx)
{
    tc_stats stats;
    CHECK_EQ_INT(tc_stats_get(ctx, &stats), TC_OK);
    return stats.kept_bytes;
}

static tc_program *compile_rows(tc_ctx *ctx, const tc_tensor leaves[3], int rows)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, IN);
    CHECK_MSG(tc_compile(layer(x, leaves[0], leaves[1], leaves[2]), &f) == TC_OK, "%s",
              tc_error(ctx));
    return f;
}

static void run_rows(tc_program *f, const norm *m, int rows, const float *want)
{
    float y[ROWS * OUT];
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(m->x, rows * IN)), TC_BUFS(TC_BUF(y, rows * OUT))),
                 TC_OK);
    CHECK(!memcmp(y, want, sizeof(float) * (size_t)rows * OUT));
}

TEST(programs_over_the_same_weights_share_what_is_kept)
{
    static norm m;
    float want[ROWS * OUT];
    tc_tensor leaves[3];
    fill(&m, 21);
    tc_ctx *ctx = context("interp");
    int64_t before = kept_now(ctx), one;
    tc_program *f = compile_captured(ctx, &m, leaves), *g = compile_rows(ctx, leaves, FEW);
    REQUIRE(f && g);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    for (int round = 0; round < 3; round++) {
        expect(ctx, &m, want);
        run_rows(f, &m, ROWS, want);
        one = kept_now(ctx) - before;
        CHECK_EQ_INT(one, info.kept_bytes);
        run_rows(g, &m, FEW, want);
        CHECK_EQ_INT(kept_now(ctx) - before, one);
        CHECK(tci_init_cache_memory(f->idle ? f->idle : f->spare, 0) ==
              tci_init_cache_memory(g->idle ? g->idle : g->spare, 0));
        fill(&m, 22 + round);
        CHECK_EQ_INT(tc_touch(leaves[0]), TC_OK);
        CHECK_EQ_INT(tc_touch(leaves[1]), TC_OK);
        CHECK_EQ_INT(tc_touch(leaves[2]), TC_OK);
        expect(ctx, &m, want); /* f keeps the old values until it runs */
        run_rows(g, &m, FEW, want);
        CHECK_EQ_INT(kept_now(ctx) - before, 2 * one);
    }
    tc_program_free(f);
    CHECK_EQ_INT(kept_now(ctx) - before, one);
    run_rows(g, &m, FEW, want);
    f = compile_rows(ctx, leaves, ROWS);
    run_rows(f, &m, ROWS, want);
    CHECK_EQ_INT(kept_now(ctx) - before, one);
    tc_program_free(g);
    run_rows(f, &m, ROWS, want);
    tc_program_free(f);
    CHECK_EQ_INT(kept_now(ctx), before);
    tc_ctx_free(ctx);
}

TEST(other_memory_other_numbers_and_other_contexts_share_nothing)
{
    static norm m, n;
    float y[ROWS * OUT];
    tc_tensor leaves[3];
    fill(&m, 31);
    fill(&n, 32);
    tc_ctx *ctx = context("interp"), *other = context("interp");
    int64_t before = kept_now(ctx);
    tc_program *f[3] = {compile_captured(ctx, &m, leaves), compile_captured(ctx, &n, leaves),
                        compile_captured(other, &m, leaves)};
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(f[0], &info), TC_OK);
    for (int i = 0; i < 3; i++) {
        float want[ROWS * OUT];
        expect(ctx, i == 1 ? &n : &m, want);
        run(f[i], m.x, y);
        CHECK(i == 1 || same(y, want));
        CHECK_EQ_INT(kept_now(ctx) - before, (i + 1) * info.kept_bytes);
    }
    for (int i = 0; i < 3; i++) {
        tc_program_free(f[i]);
    }
    tc_program *by[2];
    for (int i = 0; i < 2; i++) { /* one code, two numbers */
        tc_tensor w = tc_exp(tc_mul(leaves[0], i ? 0.37 : 0.73));
        REQUIRE(tc_compile(tc_matmul(tc_input(other, "x", TC_F32, ROWS, IN), tc_transpose(w, 0, 1)),
                           &by[i]) == TC_OK);
        run(by[i], m.x, y);
    }
    CHECK(by[0]->code == by[1]->code && by[0]->code->n_init);
    CHECK_EQ_INT(kept_now(ctx) - before, 2 * by[0]->code->kept_bytes);
    CHECK(tci_init_cache_memory(by[0]->spare, 0) != tci_init_cache_memory(by[1]->spare, 0));
    tc_program_free(by[0]);
    tc_program_free(by[1]);
    CHECK_EQ_INT(kept_now(ctx), before);
    tc_ctx_free(other);
    tc_ctx_free(ctx);
}

/* ---- several callers ---- */

enum { CALLERS = 6, TIMES = 60 };
typedef struct caller {
    tc_program *f;
    const norm *m;
    const float *want;
    int wrong;
    pthread_t thread;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    float y[ROWS * OUT];
    for (int i = 0; i < TIMES; i++) {
        bool good = tc_run(c->f, TC_BUFS(TC_BUF(c->m->x, ROWS * IN)),
                           TC_BUFS(TC_BUF(y, ROWS * OUT))) == TC_OK;
        c->wrong += !good || !same(y, c->want);
    }
    return NULL;
}

TEST(callers_at_once_share_it)
{
    static norm m;
    float want[ROWS * OUT];
    tc_tensor leaves[3];
    tc_ctx *ctx = context("interp");
    tc_program *f = compile_captured(ctx, &m, leaves);
    REQUIRE(f != NULL);
    for (int round = 0; round < 3; round++) {
        caller callers[CALLERS];
        fill(&m, 5 + round);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ_INT(tc_touch(leaves[i]), TC_OK);
        }
        expect(ctx, &m, want);
        for (int i = 0; i < CALLERS; i++) {
            callers[i] = (caller){.f = f, .m = &m, .want = want};
            REQUIRE(!pthread_create(&callers[i].thread, NULL, call_often, &callers[i]));
        }
        for (int i = 0; i < CALLERS; i++) {
            pthread_join(callers[i].thread, NULL);
            CHECK_EQ_INT(callers[i].wrong, 0);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Runs read the scale of a parameter while other runs change it: each of them sees one value. */
typedef struct racer {
    tc_program *f;
    int stop, torn;
} racer;

static void *keep_setting(void *arg)
{
    racer *r = arg;
    float one[1] = {1}, out[1];
    while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
        (void)tc_run(r->f, TC_BUFS(TC_BUF(one, 1)), TC_BUFS(TC_BUF(out, 1)));
    }
    return NULL;
}

TEST(runs_see_what_is_kept_of_one_value)
{
    static float zero[IN], x[IN], y[IN];
    tc_ctx *ctx = context("interp");
    tc_program *eval = NULL, *set = NULL;
    tc_tensor p = tc_param(ctx, zero, TC_F32, IN), by = tc_input(ctx, "by", TC_F32);
    tc_tensor in = tc_input(ctx, "x", TC_F32, IN);
    REQUIRE(tc_compile_fn(TC_TENSORS(by), TC_TENSORS(tc_neg(by), tc_assign(p, tc_add(p, by))), NULL,
                          &set) == TC_OK);
    /* the kept part less the parameter as the run itself reads it */
    tc_tensor kept = tc_sqrt(tc_square(tc_cast(tc_cast(p, TC_F64), TC_F32)));
    REQUIRE(tc_compile(tc_add(in, tc_sub(kept, p)), &eval) == TC_OK);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(eval, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 1);
    racer r = {.f = set};
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, keep_setting, &r));
    for (int i = 0; i < 400; i++) {
        CHECK_EQ_INT(tc_run(eval, TC_BUFS(TC_BUF(x, IN)), TC_BUFS(TC_BUF(y, IN))), TC_OK);
        for (int j = 0; j < IN; j++) {
            r.torn += y[j] != 0;
        }
    }
    __atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK_EQ_INT(r.torn, 0);
    tc_program_free(eval);
    tc_program_free(set);
    tc_ctx_free(ctx);
}

/* Programs of two lengths over one parameter that other runs change: k in each element, so that a
 * row of results is k times a sum. */
static void *read_rows(void *arg)
{
    racer *r = arg;
    float x[ROWS * IN], y[ROWS * OUT];
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = 1;
    }
    int rows = (int)tci_dim_known(r->f->code->inputs[0].shape[0]), torn = 0;
    for (int i = 0; i < 200; i++) {
        torn += tc_run(r->f, TC_BUFS(TC_BUF(x, rows * IN)), TC_BUFS(TC_BUF(y, rows * OUT))) !=
                TC_OK;
        for (int j = 1; j < rows * OUT; j++) {
            torn += y[j] != y[0];
        }
    }
    __atomic_add_fetch(&r->torn, torn, __ATOMIC_RELAXED);
    return NULL;
}

TEST(programs_that_share_see_one_value_each_run)
{
    static float zero[OUT * IN];
    tc_ctx *ctx = context("interp");
    int64_t before = kept_now(ctx);
    tc_tensor w = tc_param(ctx, zero, TC_F32, OUT, IN), by = tc_input(ctx, "by", TC_F32);
    racer set = {NULL, 0, 0}, readers[4] = {{NULL, 0, 0}};
    REQUIRE(tc_compile_fn(TC_TENSORS(by), TC_TENSORS(tc_neg(by), tc_assign(w, tc_add(w, by))), NULL,
                          &set.f) == TC_OK);
    pthread_t thread, threads[4];
    for (int i = 0; i < 4; i++) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, i < 2 ? ROWS : FEW, IN);
        REQUIRE(tc_compile(tc_matmul(x, tc_transpose(w, 0, 1)), &readers[i].f) == TC_OK);
        CHECK(readers[i].f->code->n_init > 0);
    }
    REQUIRE(!pthread_create(&thread, NULL, keep_setting, &set));
    for (int i = 0; i < 4; i++) {
        REQUIRE(!pthread_create(&threads[i], NULL, read_rows, &readers[i]));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(readers[i].torn, 0);
    }
    __atomic_store_n(&set.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    float x[ROWS * IN] = {0}, y[ROWS * OUT];
    for (int i = 0; i < 4; i++) {
        int rows = i < 2 ? ROWS : FEW;
        CHECK_EQ_INT(tc_run(readers[i].f, TC_BUFS(TC_BUF(x, rows * IN)),
                            TC_BUFS(TC_BUF(y, rows * OUT))),
                     TC_OK);
    }
    CHECK_EQ_INT(kept_now(ctx) - before, readers[0].f->code->kept_bytes);
    for (int i = 0; i < 4; i++) {
        tc_program_free(readers[i].f);
    }
    tc_program_free(set.f);
    CHECK_EQ_INT(kept_now(ctx), before);
    tc_ctx_free(ctx);
}

/* ---- symbolic sizes ---- */

TEST(instances_share_what_is_kept)
{
    static norm m;
    float y[ROWS * OUT], want[ROWS * OUT];
    fill(&m, 9);
    tc_ctx *ctx = context("interp");
    tc_program *f = NULL;
    tc_tensor w = tc_borrow(ctx, m.w, TC_F32, OUT, IN);
    tc_tensor mean = tc_borrow(ctx, m.mean, TC_F32, OUT), var = tc_borrow(ctx, m.var, TC_F32, OUT);
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("rows", 1, 64), IN);
    REQUIRE(tc_compile(layer(x, w, mean, var), &f) == TC_OK);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_EQ_INT(info.n_once, 1);
    expect(ctx, &m, want);
    const tci_init_cache *first = NULL;
    for (int rows = 1; rows <= ROWS; rows++) {
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(m.x, rows * IN)), TC_BUFS(TC_BUF(y, rows * OUT))) ==
                      TC_OK,
                  "%s", tc_error(f));
        CHECK(!memcmp(y, want, sizeof(float) * (size_t)rows * OUT));
        first = first ? first : f->kept;
        CHECK(f->kept == first && first != NULL);
    }
    fill(&m, 10);
    expect(ctx, &m, want);
    CHECK(tc_touch(w) == TC_OK && tc_touch(mean) == TC_OK && tc_touch(var) == TC_OK);
    run(f, m.x, y);
    CHECK(same(y, want));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- a device ---- */

TEST(a_device_launches_it_once)
{
    static norm m;
    static float y[ROWS * OUT];
    tc_tensor leaves[3];
    (void)tc_register_backend(&null_backend);
    tc_ctx *ctx = context("null");
    tc_program *f = compile_captured(ctx, &m, leaves);
    tc_program_info info;
    REQUIRE(f && tc_program_get_info(f, &info) == TC_OK);
    CHECK(info.n_once >= 1);
    int each = info.n_steps - info.n_once;
    for (int round = 0; round < 2; round++) {
        int launched = null_seen.launched;
        run(f, m.x, y);
        CHECK_EQ_INT(null_seen.launched - launched, info.n_steps - round); /* of leaf 0 alone */
        launched = null_seen.launched;
        run(f, m.x, y);
        run(f, m.x, y);
        CHECK_EQ_INT(null_seen.launched - launched, 2 * each);
        CHECK_EQ_INT(tc_touch(leaves[0]), TC_OK);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    CHECK_EQ_INT(null_seen.blocks, 0);
}

TEST_MAIN
