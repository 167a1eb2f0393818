/* tests/cpu/test_jit_symbolic.c - functions that specialize themselves where sizes may be symbols:
 * how many programs there are, and that their results are right. */
#define _GNU_SOURCE
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <pthread.h>
#include <unistd.h>

#include "tc_test.h"

#define REQUIRE_OK(call)                                                                           \
    do {                                                                                           \
        tc_status status_of_call = (call);                                                         \
        REQUIRE(status_of_call == TC_OK);                                                          \
    } while (0)

enum { WIDTH = 6, MOST = 40 * 1024 };

static float x[MOST], w[WIDTH], y[MOST], expected[MOST];

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static tc_jit *make(tc_jit_build build, const tc_jit_options *options, const char *backend)
{
    tc_options o = {.backend = backend, .threads = 1, .no_disk_cache = true};
    tc_jit_options all = options ? *options : (tc_jit_options){0};
    tc_jit *fn;
    all.options = &o;
    REQUIRE_OK(tc_jit_make(build, NULL, &all, &fn));
    return fn;
}

/* x [batch, length, WIDTH], w [WIDTH] -> sum over length of x * w, divided by length: [batch,
 * WIDTH] */
static tc_status build_pool(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                            void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    tc_tensor sum = tc_sum(tc_mul(in[0], in[1]), TC_AXES(1), false);
    out[0] = tc_div(sum, tc_size(in[0], 1));
    return TC_OK;
}

static int run_pool(tc_jit *fn, int batch, int length)
{
    for (int i = 0; i < batch * length * WIDTH; i++) {
        x[i] = (float)(i % 13) - 4;
    }
    for (int i = 0; i < WIDTH; i++) {
        w[i] = (float)(1 << i);
    }
    tc_status status = tc_jit_run(fn, NULL,
                                  TC_BUFS(TC_BUF_ND(x, batch, length, WIDTH), TC_BUF_ND(w, WIDTH)),
                                  TC_BUFS(TC_BUF_ND(y, batch, WIDTH)));
    CHECK_MSG(!status, "batch %d, length %d: %s", batch, length, tc_error(fn));
    int wrong = 0;
    for (int b = 0; b < batch && !status; b++) {
        for (int c = 0; c < WIDTH; c++) {
            float sum = 0; /* whole numbers: exact in any order */
            for (int i = 0; i < length; i++) {
                sum += x[(b * length + i) * WIDTH + c] * w[c];
            }
            float is = y[b * WIDTH + c], mean = sum / (float)length;
            wrong += !(is == mean || (is != is && mean != mean));
        }
    }
    CHECK_MSG(!wrong, "batch %d, length %d: %d elements are wrong", batch, length, wrong);
    return wrong;
}

static void run_thousand(const char *backend)
{
    tc_jit *fn = make(build_pool, NULL, backend);
    unsigned state = 7;
    int wrong = run_pool(fn, 3, 17);
    for (int i = 0; i < 1000 && wrong < 3; i++) {
        int batch = (int)(next_random(&state) % 40), length = (int)(next_random(&state) % 90);
        wrong += run_pool(fn, i % 50 == 7 ? i % 100 == 7 : batch, i % 50 == 9 ? 0 : length);
    }
    tc_jit_variant list[8];
    int n = tc_jit_list(fn, list, 8);
    CHECK_MSG(n <= 3, "%d programs, the last serves %s", n, list[n < 8 ? n - 1 : 7].signature);
    int64_t hits = 0;
    for (int i = 0; i < n && i < 8; i++) {
        hits += list[i].hits;
    }
    CHECK_EQ_INT(hits, 1001);
    tc_jit_free(fn);
}

TEST(a_thousand_sizes_are_three_programs_at_most)
{
    run_thousand("cpu");
}

TEST(a_thousand_sizes_are_three_programs_at_most_interpreted)
{
    run_thousand("interp");
}

/* ---- equal sizes ---- */

/* x [n], w [n] -> x + w */
static tc_status build_sum(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                           void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    out[0] = tc_add(in[0], in[1]);
    return TC_OK;
}

static tc_status run_sum(tc_jit *fn, int n, int m)
{
    int most = n > m ? n : m;
    for (int i = 0; i < most; i++) {
        x[i] = (float)i;
        expected[i] = 100.f * (float)i;
    }
    float *second = expected;
    tc_status status = tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, n), TC_BUF_ND(second, m)),
                                  TC_BUFS(TC_BUF(y, most)));
    for (int i = 0; i < most && !status; i++) {
        CHECK(y[i] == x[n == 1 ? 0 : i] + second[m == 1 ? 0 : i]);
    }
    return status;
}

TEST(sizes_that_were_always_equal_are_one_symbol)
{
    tc_jit *fn = make(build_sum, NULL, "interp");
    tc_jit_variant list[8];
    CHECK_EQ_INT(run_sum(fn, 5, 5), TC_OK);
    CHECK_EQ_INT(run_sum(fn, 9, 9), TC_OK);
    CHECK_EQ_INT(run_sum(fn, 1000, 1000), TC_OK);
    CHECK_EQ_INT(tc_jit_list(fn, list, 8), 2);
    CHECK_STR(list[1].signature, "f32[0..1048576] f32[as 0.0]");
    CHECK_EQ_INT(run_sum(fn, 7, 1), TC_OK); /* the guard sees it, and 1 is no symbol */
    CHECK_EQ_INT(run_sum(fn, 11, 1), TC_OK);
    CHECK_EQ_INT(run_sum(fn, 11, 11), TC_OK);
    CHECK(tc_jit_list(fn, list, 8) <= 4);
    CHECK_EQ_INT(run_sum(fn, 7, 3), TC_ERR_SHAPE); /* as it is with numbers */
    CHECK_HAS(tc_error(fn), "tc_add");
    CHECK_EQ_INT(run_sum(fn, 0, 0), TC_OK);
    CHECK_EQ_INT(run_sum(fn, 1, 1), TC_OK);
    tc_jit_free(fn);
}

/* ---- what build does not allow ---- */

/* reads the size as a number */
static tc_status build_counted(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out,
                               int n_out, void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    int64_t n = tc_size(in[0], 0);
    out[0] = in[0];
    for (int64_t i = 0; i < n && i < 40; i++) {
        out[0] = tc_add(out[0], 1);
    }
    return TC_OK;
}

TEST(fixed_axes_are_never_symbols)
{
    tc_jit_axis axis = {0, -1};
    tc_jit *fn = make(build_counted, &(tc_jit_options){.fixed_axes = &axis, .n_fixed_axes = 1},
                      "interp");
    for (int n = 2; n < 6; n++) {
        float in[8] = {0}, out[8];
        CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(in, n)), TC_BUFS(TC_BUF(out, n))),
                     TC_OK);
        CHECK(out[0] == (float)n && out[n - 1] == (float)n);
    }
    CHECK_EQ_INT(tc_jit_list(fn, NULL, 0), 4);
    tc_jit_free(fn);
}

/* x [n, 4] -> rows of 8: only even n, and no symbol */
static tc_status build_folded(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                              void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    out[0] = tc_sum(tc_reshape(in[0], -1, 8), TC_AXES(1), false);
    return TC_OK;
}

static tc_status run_folded(tc_jit *fn, int n)
{
    for (int i = 0; i < n * 4; i++) {
        x[i] = 1;
    }
    tc_status status = tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, n, 4)), TC_BUFS(TC_BUF(y, n / 2)));
    CHECK(status || y[n / 2 - 1] == 8);
    return status;
}

typedef struct heard {
    int n;
    char text[1024];
} heard;

static void hear(void *user, const char *topic, const char *text)
{
    heard *h = user;
    if (!strcmp(topic, "recompiles") && strstr(text, "max_variants")) {
        h->n++;
        snprintf(h->text, sizeof(h->text), "%s", text);
    }
}

TEST(beyond_max_variants_it_is_as_the_options_say)
{
    for (int beyond = TC_BEYOND_GENERAL; beyond <= TC_BEYOND_FAIL; beyond++) {
        heard h = {0};
        tc_options o = {.backend = "cpu",
                        .threads = 1,
                        .no_disk_cache = true,
                        .log = hear,
                        .log_user = &h};
        tc_jit_options options = {.options = &o, .max_variants = 2, .beyond = (tc_beyond)beyond};
        tc_jit *fn;
        REQUIRE_OK(tc_jit_make(build_folded, NULL, &options, &fn));
        tc_stats before, after;
        for (int n = 2; n <= 4; n += 2) {
            CHECK_EQ_INT(run_folded(fn, n), TC_OK);
        }
        tc_stats(tc_jit_ctx(fn), &before);
        for (int n = 6; n <= 20; n += 2) {
            CHECK_EQ_INT(run_folded(fn, n), beyond == TC_BEYOND_FAIL ? TC_ERR_LIMIT : TC_OK);
        }
        tc_stats(tc_jit_ctx(fn), &after);
        CHECK_EQ_INT(after.compiler_runs, before.compiler_runs);
        CHECK_EQ_INT(h.n, 1);
        CHECK_HAS(h.text, "test_jit_symbolic.c:");
        CHECK_HAS(h.text, "axis 0 of input 0 had 2 to 6: write TC_DIM(\"in0_0\", 2, 6)");
        CHECK_EQ_INT(tc_jit_list(fn, NULL, 0), beyond == TC_BEYOND_FAIL ? 2 : 4);
        tc_jit_free(fn);
    }
}

static tc_jit *make_heard(tc_jit_build build, tc_jit_options options, heard *h)
{
    tc_options o = {.backend = "cpu",
                    .threads = 1,
                    .no_disk_cache = true,
                    .log = hear,
                    .log_user = h};
    tc_jit *fn;
    options.options = &o;
    REQUIRE_OK(tc_jit_make(build, NULL, &options, &fn));
    return fn;
}

static int compiler_runs(tc_jit *fn)
{
    tc_stats s;
    tc_stats(tc_jit_ctx(fn), &s);
    return (int)s.compiler_runs;
}

static int count_native(tc_jit *fn)
{
    tc_jit_variant list[32];
    int n = tc_jit_list(fn, list, 32), native = 0;
    for (int i = 0; i < n && i < 32; i++) {
        native += !list[i].interpreted;
    }
    return native;
}

/* x [rows, width] -> x - its largest element per row; width is read as a number */
static tc_status build_centred(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out,
                               int n_out, void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    tc_tensor most = tc_slice(in[0], 1, 0, 1, 1);
    for (int64_t i = 1; i < tc_size(in[0], 1); i++) {
        most = tc_maximum(most, tc_slice(in[0], 1, i, i + 1, 1));
    }
    out[0] = tc_sub(in[0], most);
    return TC_OK;
}

TEST(max_variants_bounds_programs_whose_other_axis_is_a_symbol)
{
    tc_jit_axis axis = {0, 1};
    for (int beyond = TC_BEYOND_GENERAL; beyond <= TC_BEYOND_FAIL; beyond++) {
        heard h = {0};
        tc_jit *fn = make_heard(build_centred,
                                (tc_jit_options){.max_variants = 2,
                                                 .beyond = (tc_beyond)beyond,
                                                 .fixed_axes = &axis,
                                                 .n_fixed_axes = 1},
                                &h);
        int before = compiler_runs(fn), served = 0;
        for (int width = 1; width <= 12; width++) {
            for (int rows = 1; rows <= 2; rows++) {
                for (int i = 0; i < rows * width; i++) {
                    x[i] = (float)i;
                }
                tc_status status = tc_jit_run(fn, NULL,
                                              TC_BUFS(TC_BUF_ND(x, rows, width + beyond * 20)),
                                              TC_BUFS(TC_BUF_ND(y, rows, width + beyond * 20)));
                served += !status;
                CHECK(!status || status == TC_ERR_LIMIT);
            }
        }
        CHECK_EQ_INT(served, beyond == TC_BEYOND_FAIL ? 2 : 24);
        CHECK_EQ_INT(count_native(fn), 2);
        CHECK_EQ_INT(compiler_runs(fn) - before, 2);
        CHECK_EQ_INT(h.n, 1);
        CHECK_HAS(h.text, "axis 1 of input 0, which options.fixed_axes names, had ");
        CHECK(!strstr(h.text, "TC_DIM")); /* axis 0 is a symbol already */
        tc_jit_free(fn);
    }
}

/* x [n] -> x from element `static 0` on */
static tc_status build_tail(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                            void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = tc_slice(tc_mul(in[0], 3), 0, tc_jit_static(ctx, 0), TC_END, 1);
    return TC_OK;
}

TEST(max_variants_bounds_programs_of_all_static_integers)
{
    enum { N = 30 };
    for (int beyond = TC_BEYOND_GENERAL; beyond <= TC_BEYOND_FAIL; beyond++) {
        heard h = {0};
        tc_jit *fn = make_heard(build_tail,
                                (tc_jit_options){.max_variants = 3, .beyond = (tc_beyond)beyond},
                                &h);
        int before = compiler_runs(fn), served = 0;
        for (int i = 0; i < N; i++) {
            x[i] = (float)i;
        }
        for (int from = 0; from < 20; from++) {
            tc_status status = tc_jit_run(fn, TC_STATICS(from, 7), TC_BUFS(TC_BUF_ND(x, N)),
                                          TC_BUFS(TC_BUF(y, N - from)));
            served += !status;
            CHECK(status || (y[0] == 3.f * (float)from && y[N - from - 1] == 3 * (N - 1)));
        }
        CHECK_EQ_INT(served, beyond == TC_BEYOND_FAIL ? 3 : 20);
        CHECK_EQ_INT(tc_jit_list(fn, NULL, 0), beyond == TC_BEYOND_FAIL ? 3 : 6);
        CHECK(compiler_runs(fn) - before <= 3);
        CHECK_EQ_INT(h.n, 1);
        CHECK_HAS(h.text, "static integer 0 had 0 to 3: give it as an input");
        CHECK_HAS(h.text, "or raise options.max_variants");
        CHECK(!strstr(h.text, "static integer 1 had") && !strstr(h.text, "TC_DIM"));
        tc_jit_free(fn);
    }
}

TEST(beyond_max_variants_a_symbolic_program_takes_the_place_of_others)
{
    heard h = {0};
    tc_jit_variant list[4];
    tc_jit *fn = make_heard(build_sum, (tc_jit_options){.max_variants = 1}, &h);
    int before = compiler_runs(fn);
    CHECK_EQ_INT(run_sum(fn, 5, 5), TC_OK);
    for (int n = 6; n < 40; n++) {
        CHECK_EQ_INT(run_sum(fn, n, n), TC_OK);
    }
    CHECK_EQ_INT(run_sum(fn, 5, 5), TC_OK);
    REQUIRE(tc_jit_list(fn, list, 4) == 1);
    CHECK_STR(list[0].signature, "f32[0..1048576] f32[as 0.0]");
    CHECK(!list[0].interpreted);
    CHECK_EQ_INT(list[0].hits, 35);
    CHECK_EQ_INT(run_sum(fn, 7, 1), TC_OK); /* other guards: it covers nothing */
    CHECK_EQ_INT(count_native(fn), 1);
    CHECK_EQ_INT(compiler_runs(fn) - before, 2);
    CHECK_EQ_INT(h.n, 1);
    tc_jit_free(fn);
    fn = make_heard(build_sum, (tc_jit_options){.max_variants = 1, .beyond = TC_BEYOND_INTERPRET},
                    &h);
    CHECK_EQ_INT(run_sum(fn, 5, 5), TC_OK);
    CHECK_EQ_INT(run_sum(fn, 9, 9), TC_OK);
    REQUIRE(tc_jit_list(fn, list, 4) == 2);
    CHECK(list[1].interpreted);
    CHECK_STR(list[1].signature, "f32[9] f32[9]");
    CHECK_EQ_INT(tc_jit_drop(fn, list[0].id), TC_OK); /* there is room for a program again */
    CHECK_EQ_INT(run_sum(fn, 11, 11), TC_OK);
    CHECK_EQ_INT(run_sum(fn, 9, 9), TC_OK); /* and the interpreter serves no more */
    REQUIRE(tc_jit_list(fn, list, 4) == 1);
    CHECK(!list[0].interpreted && list[0].hits == 2);
    tc_jit_free(fn);
}

TEST(output_sizes_of_symbolic_programs_follow_the_inputs)
{
    tc_jit *fn = make(build_pool, NULL, "interp");
    float *none = NULL;
    for (int n = 1; n < 5; n++) {
        CHECK_EQ_INT(
            tc_jit_output_size(fn, NULL,
                               TC_BUFS(TC_BUF_ND(none, n, 7, WIDTH), TC_BUF_ND(none, WIDTH)), 0, 0),
            n);
    }
    CHECK_EQ_INT(tc_jit_list(fn, NULL, 0), 2);
    tc_jit_free(fn);
}

/* ---- sizes that keep coming ---- */

/* x [n] -> x + 1, with more work where n is a symbol (or a number), so that which form is faster
 * does not depend on the machine. */
enum { WORK = 40 };
typedef struct worker {
    bool fixed_works; /* the fixed form is the slow one */
    tc_tensor param;
    int n_symbolic, n_fixed; /* times that build was called */
} worker;

static tc_status build_work(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                            void *user)
{
    (void)ctx, (void)n_in, (void)n_out;
    worker *w = user;
    bool symbolic = tc_size(in[0], 0) > MOST || tc_size(in[0], 0) < 0;
    *(symbolic ? &w->n_symbolic : &w->n_fixed) += 1;
    out[0] = tc_add(in[0], 1);
    tc_tensor more = in[0];
    for (int i = 0; i < WORK && symbolic != w->fixed_works; i++) {
        more = tc_sin(more);
    }
    out[0] = tc_add(out[0], tc_mul(tc_sum(tc_mul(more, 0), TC_AXES(0), false), 0));
    if (w->param.ctx) {
        out[1] = tc_assign(w->param, tc_add(w->param, 1));
    }
    return TC_OK;
}

typedef struct hot_log {
    int served, refused, cold;
} hot_log;

static void hear_hot(void *user, const char *topic, const char *text)
{
    hot_log *h = user;
    (void)topic;
    h->served += strstr(text, "f32[600] kept coming: a program of these sizes serves") != NULL;
    h->refused += strstr(text, "is not worth its place") != NULL;
    h->cold += strstr(text, "is dropped, as they no longer do") != NULL;
}

static tc_jit *make_worker(worker *w, hot_log *h, tc_jit_options options)
{
    static tc_options o;
    o = (tc_options){.backend = "cpu",
                     .threads = 1,
                     .no_disk_cache = true,
                     .log = hear_hot,
                     .log_user = h};
    tc_jit *fn;
    options.options = &o;
    REQUIRE_OK(tc_jit_make(build_work, w, &options, &fn));
    return fn;
}

static void run_work(tc_jit *fn, int n, int times)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)i;
    }
    for (int t = 0; t < times; t++) {
        y[0] = y[n - 1] = 0;
        REQUIRE_OK(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, n)), TC_BUFS(TC_BUF(y, n))));
        CHECK(y[0] == 1 && y[n - 1] == (float)n);
    }
}

static int count_hot(tc_jit *fn, int64_t *hits)
{
    tc_jit_variant list[16];
    int n = tc_jit_list(fn, list, 16), hot = 0;
    for (int i = 0; i < n; i++) {
        hot += list[i].hot;
        *hits = list[i].hot ? list[i].hits : *hits;
    }
    return hot;
}

static bool report_has(tc_jit *fn, const char *text, bool json)
{
    static char all[1 << 16];
    FILE *f = tmpfile();
    REQUIRE(f != NULL);
    (json ? tc_recompile_report_json : tc_recompile_report)(tc_jit_ctx(fn), f);
    rewind(f);
    all[fread(all, 1, sizeof(all) - 1, f)] = 0;
    fclose(f);
    return strstr(all, text) != NULL;
}

TEST(sizes_that_keep_coming_get_a_program_of_their_own_if_it_is_faster)
{
    worker w = {0};
    hot_log h = {0};
    int64_t hits = 0;
    tc_jit *fn = make_worker(&w, &h, (tc_jit_options){0});
    run_work(fn, 5, 1);
    run_work(fn, 600, 400);
    CHECK_EQ_INT(count_hot(fn, &hits), 0); /* not yet */
    for (int i = 0; i < 200; i++) {
        run_work(fn, 700 + i % 50, 1); /* these do not keep coming */
        run_work(fn, 600, 1);
    }
    CHECK_EQ_INT(count_hot(fn, &hits), 1);
    CHECK_EQ_INT(h.served, 1);
    CHECK_EQ_INT(w.n_fixed, 2);
    int64_t before = hits;
    run_work(fn, 600, 100);
    count_hot(fn, &hits);
    CHECK_EQ_INT(hits - before, 100);
    CHECK(report_has(fn, "sizes that kept coming, ", false) && !report_has(fn, "not kept", false));
    CHECK(report_has(fn, "\"hot\": true, \"speed\": ", true));
    for (int i = 0; i < 9000; i++) { /* it grows cold */
        run_work(fn, 701 + i % 50, 1);
    }
    CHECK_EQ_INT(count_hot(fn, &hits), 0);
    CHECK_EQ_INT(h.cold, 1);
    CHECK_EQ_INT(w.n_symbolic, 1);
    tc_jit_free(fn);
}

TEST(a_fixed_form_that_is_no_faster_is_not_kept_and_not_tried_for_ever)
{
    worker w = {.fixed_works = true};
    hot_log h = {0};
    int64_t hits = 0;
    tc_jit *fn = make_worker(&w, &h, (tc_jit_options){.max_hot = 2});
    run_work(fn, 5, 1);
    for (int n = 600; n < 605; n++) {
        run_work(fn, n, 1000);
    }
    CHECK_EQ_INT(count_hot(fn, &hits), 0);
    CHECK_EQ_INT(h.refused, 2);
    CHECK_EQ_INT(w.n_fixed, 3);
    CHECK(report_has(fn, "as fast as with symbols, not kept; ", false));
    tc_jit_free(fn);
}

TEST(programs_for_sizes_that_keep_coming_are_bounded)
{
    worker w = {0};
    hot_log h = {0};
    int64_t hits = 0;
    tc_jit *fn = make_worker(&w, &h, (tc_jit_options){.max_hot = 2, .max_variants = 1});
    run_work(fn, 5, 1);
    for (int n = 600; n < 604; n++) {
        run_work(fn, n, 1000);
    }
    CHECK_EQ_INT(count_hot(fn, &hits), 2);
    tc_jit_free(fn);
    fn = make_worker(&w, &h, (tc_jit_options){.max_hot = -1});
    run_work(fn, 5, 1);
    run_work(fn, 600, 1000);
    CHECK_EQ_INT(count_hot(fn, &hits), 0);
    tc_jit_free(fn);
    fn = make_worker(&w, &h, (tc_jit_options){0});
    run_work(fn, 5, 1);
    run_work(fn, 600, 10);
    tc_jit_stance(fn, TC_STANCE_FAIL);
    run_work(fn, 600, 1000);
    CHECK_EQ_INT(count_hot(fn, &hits), 0);
    tc_jit_stance(fn, TC_STANCE_COMPILE);
    run_work(fn, 600, 1000);
    CHECK_EQ_INT(count_hot(fn, &hits), 1);
    tc_jit_free(fn);
}

TEST(the_program_for_sizes_that_keep_coming_is_made_in_the_background_under_later)
{
    worker w = {0};
    hot_log h = {0};
    int64_t hits = 0;
    tc_jit *fn = make_worker(&w, &h, (tc_jit_options){0});
    run_work(fn, 5, 1);
    run_work(fn, 600, 10);
    tc_jit_stance(fn, TC_STANCE_LATER);
    int runs = 0;
    for (; runs < 200000 && !count_hot(fn, &hits); runs += 61) {
        run_work(fn, 600, 61);
        usleep(2000); /* the compiler has a lower priority */
    }
    CHECK_MSG(count_hot(fn, &hits) == 1, "after %d runs", runs);
    CHECK_EQ_INT(h.served, 1);
    tc_jit_free(fn);
}

TEST(a_function_that_changes_parameters_is_not_run_twice)
{
    worker w = {0};
    hot_log h = {0};
    int64_t hits = 0;
    float *at = x + MOST / 2, zero = 0, value = 0;
    tc_jit *fn = make_worker(&w, &h, (tc_jit_options){.n_outputs = 2});
    w.param = tc_param(tc_jit_ctx(fn), &zero, TC_F32, 1);
    for (int i = 0; i < 1001; i++) {
        int n = i ? 600 : 5;
        tc_status status = tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(at, n)), TC_BUFS(TC_BUF(y, n)));
        CHECK_MSG(!status, "%s", tc_error(fn));
    }
    REQUIRE_OK(tc_read(w.param, &value, 1));
    CHECK_MSG(value == 1001, "%g", (double)value);
    CHECK_EQ_INT(count_hot(fn, &hits), 0);
    tc_jit_free(fn);
}

/* ---- threads ---- */

enum { THREADS = 32, ROUNDS = 80 };

typedef struct runner {
    pthread_t thread;
    tc_jit *fn;
    unsigned state;
    int wrong;
    bool hot; /* every other call is of one size, and programs are dropped rarely */
} runner;

static void *run_sizes_and_drop(void *arg)
{
    runner *r = arg;
    float a[64], b[64], sum[64];
    for (int round = 0; round < ROUNDS; round++) {
        int n = r->hot && round % 2 ? 40 : (int)(next_random(&r->state) % 64);
        for (int i = 0; i < n; i++) {
            a[i] = (float)(i * round);
            b[i] = (float)round;
        }
        if (tc_jit_run(r->fn, NULL, TC_BUFS(TC_BUF_ND(a, n), TC_BUF_ND(b, n)),
                       TC_BUFS(TC_BUF(sum, n)))) {
            r->wrong++;
            continue;
        }
        for (int i = 0; i < n; i++) {
            r->wrong += sum[i] != a[i] + b[i];
        }
        if (next_random(&r->state) % (r->hot ? 512 : 16) == 0) {
            tc_jit_drop(r->fn, -1);
        }
    }
    return NULL;
}

static void run_threads(const char *backend, bool hot)
{
    tc_jit *fn = make(build_sum, NULL, backend);
    static runner runners[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (runner){.fn = fn, .state = (unsigned)i + 1, .hot = hot};
        REQUIRE(pthread_create(&runners[i].thread, NULL, run_sizes_and_drop, &runners[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(runners[i].thread, NULL);
        wrong += runners[i].wrong;
    }
    CHECK_MSG(!wrong, "%d are wrong", wrong);
    tc_jit_free(fn);
}

TEST(threads_run_any_sizes_while_programs_are_dropped)
{
    run_threads("interp", false);
}

TEST(threads_run_sizes_that_keep_coming_while_programs_are_dropped)
{
    run_threads("cpu", true);
}

TEST_MAIN
