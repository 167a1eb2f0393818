/* tests/cpu/test_profile.c - profiles: what is recorded is what ran, and recording disturbs
 * nothing.
 * Needs a compiler. */
#include "inside.h"

#include "cache.h"
#include "json.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { LENGTH = 64, KERNELS = 50 };

static float in[LENGTH], out[LENGTH];

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void run(tc_program *f)
{
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, LENGTH)), TC_BUFS(TC_BUF(out, LENGTH))), TC_OK);
}

/* Many small kernels, each by itself. */
static tc_program *chain(tc_ctx *ctx, const char *name)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, LENGTH), y = x;
    for (int i = 0; i < KERNELS; i++) {
        y = tc_materialize(tc_sin(y));
    }
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &(tc_options){.name = name}, &f) == TC_OK);
    return f;
}

static tc_ctx *context(int threads)
{
    tc_ctx *ctx;
    tc_options o = default_options();
    o.threads = threads;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static bytes written;
static json *timeline(tc_profile *p)
{
    CHECK_EQ_INT(tc_profile_write(p, in_dir("t.json")), TC_OK);
    written = read_file(in_dir("t.json"));
    written.data[written.n] = 0;
    json *j = json_parse((char *)written.data);
    REQUIRE(j && j->kind == JSON_OBJECT && json_get(j, "traceEvents"));
    return j;
}

static const char *string_of(const json *e, const char *key)
{
    const json *v = json_get(e, key);
    return v && v->kind == JSON_STRING ? v->string : "";
}

static double number_of(const json *e, const char *key)
{
    const json *v = json_get(e, key);
    return v ? v->number : NAN;
}

static bool is(const json *e, const char *category)
{
    return !strcmp(string_of(e, "cat"), category) && !strcmp(string_of(e, "ph"), "X");
}

/* The event of that category on the same track that has e in it. */
static const json *around(const json *events, const json *e, const char *category)
{
    double begin = number_of(e, "ts"), end = begin + number_of(e, "dur");
    for (const json *o = events->first; o; o = o->next) {
        double from = number_of(o, "ts"), to = from + number_of(o, "dur");
        bool inside = from <= begin + 0.001 && to >= end - 0.001;
        if (inside && is(o, category) && number_of(o, "tid") == number_of(e, "tid")) {
            return o;
        }
    }
    return NULL;
}

/* otherData.idle of the timeline's only track with kernels. */
static const json *idle_of(const json *j)
{
    const json *rows = json_get(json_get(j, "otherData"), "idle");
    REQUIRE(rows && rows->n == 1);
    return rows->first;
}

TEST(kernels_are_in_runs_in_steps_and_add_up_to_the_time_that_passed)
{
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "train");
    tc_profile *p;
    run(f);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    double wall = now_us();
    for (int i = 0; i < 3; i++) {
        tc_mark_begin("outer");
        tc_mark_begin("inner \"1\"");
        run(f);
        tc_mark_end();
        tc_mark_end();
        CHECK_EQ_INT(tc_profile_step(p), TC_OK);
    }
    wall = now_us() - wall;
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    run(f); /* not recorded */
    json *j = timeline(p);
    const json *events = json_get(j, "traceEvents");
    int kernels = 0, runs = 0, steps = 0, marks = 0;
    double sum = 0;
    for (const json *e = events->first; e; e = e->next) {
        if (is(e, "kernel")) {
            const json *args = json_get(e, "args");
            kernels++;
            sum += number_of(e, "dur");
            CHECK(around(events, e, "run") && around(events, e, "step"));
            CHECK_STR(string_of(args, "program"), "train");
            CHECK(number_of(args, "bytes") == 2 * LENGTH * sizeof(float));
            CHECK_HAS(string_of(args, "line"), "test_profile.c:");
            const json *operands = json_get(args, "operands");
            CHECK_EQ_INT(operands->n, 2);
            CHECK_STR(operands->first->string, "read f32 [64]");
            CHECK_STR(operands->first->next->string, "write f32 [64]");
        }
        runs += is(e, "run") && !strcmp(string_of(e, "name"), "tc_run train");
        steps += is(e, "step");
        if (is(e, "mark") && !strcmp(string_of(e, "name"), "inner \"1\"")) {
            marks++;
            CHECK(around(events, e, "mark") != NULL);
        }
    }
    CHECK_EQ_INT(kernels, 3 * KERNELS);
    CHECK_EQ_INT(runs, 3);
    CHECK_EQ_INT(steps, 3);
    CHECK_EQ_INT(marks, 3);
    CHECK(number_of(idle_of(j), "in_runs_us") > 0 && number_of(idle_of(j), "outside_us") > 0);
    CHECK_MSG(sum <= wall, "kernels %.3f us, passed %.3f us", sum, wall);
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* A kernel of some 20 ns is drawn as that, and not as the time that writing its record takes. */
TEST(tiny_kernels_are_drawn_tiny)
{
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "tiny");
    tc_profile *p;
    run(f);
    double best = 1e9, drawn = 1e9;
    for (int i = 0; i < 500; i++) {
        double t = now_us();
        run(f);
        t = now_us() - t;
        best = t < best ? t : best;
    }
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < 500; i++) {
        run(f);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    for (int64_t i = 0; i < p->threads[0].n; i++) {
        const tci_record *r = &p->threads[0].records[i];
        double us = (double)(r->end_ns - r->begin_ns) * 1e-3;
        drawn = r->kind == TCI_RECORD_KERNEL && us < drawn ? us : drawn;
    }
    CHECK_MSG(drawn < best / KERNELS + 0.2, "drawn %.3f us, is %.3f us", drawn, best / KERNELS);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* ---- idle time ---- */

/* From the events alone: the share of the time from the first kernel to the last one in which none
 * ran. Kernels of one thread do not overlap. */
static double idle_by_events(const json *j, double *span)
{
    double begin = INFINITY, end = 0, busy = 0;
    for (const json *e = json_get(j, "traceEvents")->first; e; e = e->next) {
        if (is(e, "kernel")) {
            begin = fmin(begin, number_of(e, "ts"));
            end = fmax(end, number_of(e, "ts") + number_of(e, "dur"));
            busy += number_of(e, "dur");
        }
    }
    *span = end - begin;
    return 1 - busy / *span;
}

/* The name of the main thread's track. */
static const char *main_track(const json *j)
{
    for (const json *e = json_get(j, "traceEvents")->first; e; e = e->next) {
        const char *name = string_of(json_get(e, "args"), "name");
        if (!strcmp(string_of(e, "name"), "thread_name") && !strncmp(name, "main", 4)) {
            return name;
        }
    }
    return "";
}

static const char *table_of(const tc_profile *p)
{
    static char text[20000];
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_profile_table(p, file, TC_BY_TIME, 10), TC_OK);
    fclose(file);
    return text;
}

TEST(many_tiny_runs_are_launch_bound)
{
    enum { RUNS = 100000, ATTEMPTS = 5 };
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f;
    tc_profile *p = NULL;
    json *j = NULL;
    double span = 0, share = 0;
    REQUIRE(tc_compile(tc_add(tc_input(ctx, "x", TC_F32, 8), 1), &f) == TC_OK);
    for (int attempt = 0; attempt < ATTEMPTS && share <= 0.5; attempt++) {
        if (j) { /* others had the processor for long within kernels */
            json_free(j);
            free(written.data);
            tc_profile_free(p);
        }
        REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
        for (int i = 0; i < RUNS; i++) {
            tc_run(f, TC_BUFS(TC_BUF(in, 8)), TC_BUFS(TC_BUF(out, 8)));
        }
        CHECK_EQ_INT(tc_profile_end(p), TC_OK);
        j = timeline(p);
        share = idle_by_events(j, &span);
    }
    const json *idle = idle_of(j);
    CHECK_STR(string_of(idle, "track"), "main");
    CHECK_MSG(fabs(number_of(idle, "idle") - share) < 0.01, "%g, by the events %g",
              number_of(idle, "idle"), share);
    CHECK(fabs(number_of(idle, "busy_us") + number_of(idle, "in_runs_us") +
               number_of(idle, "outside_us") - span) < 0.01 * span);
    CHECK_MSG(share > 0.5, "idle %g", share);
    CHECK(number_of(idle, "outside_us") > 0);
    CHECK(number_of(idle, "in_runs_us") == 0); /* a run has one kernel */
    CHECK(json_get(idle, "launch_bound")->integer == 1);
    CHECK_HAS(main_track(j), ", launch-bound)");
    CHECK_HAS(table_of(p), ", launch-bound:");
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* The time outside of runs is told apart from that between the kernels of a run, and the time of a
 * compile is no idle time. */
TEST(few_large_runs_are_not_launch_bound_but_for_what_the_program_does_between_them)
{
    enum { MANY = 1 << 20, RUNS = 8 };
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f, *g;
    tc_profile *p;
    float *a = calloc(MANY, sizeof(float)), *b = calloc(MANY, sizeof(float));
    REQUIRE(a && b);
    REQUIRE(tc_compile(tc_exp(tc_sin(tc_input(ctx, "x", TC_F32, MANY))), &f) == TC_OK);
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        double slept = 0;
        REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
        for (int i = 0; i < RUNS; i++) {
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(a, MANY)), TC_BUFS(TC_BUF(b, MANY))), TC_OK);
            if (i == 3 && sleeps) {
                slept = now_us();
                usleep(400000);
                slept = now_us() - slept;
            } else if (i == 3) {
                REQUIRE(tc_compile(tc_cos(tc_sin(tc_input(ctx, "x", TC_F32, MANY))), &g) == TC_OK);
            }
        }
        CHECK_EQ_INT(tc_profile_end(p), TC_OK);
        json *j = timeline(p);
        const json *idle = idle_of(j);
        if (sleeps) {
            CHECK(number_of(idle, "outside_us") >= slept - 1);
            CHECK(number_of(idle, "in_compiles_us") == 0);
            CHECK_HAS(table_of(p), " outside of runs");
        } else {
            CHECK(number_of(idle, "in_compiles_us") > 1000);
            CHECK(number_of(idle, "in_compiles_us") > number_of(idle, "outside_us"));
            CHECK(json_get(idle, "launch_bound")->integer == 0);
            CHECK(!strstr(main_track(j), "launch-bound") && strstr(main_track(j), "main (idle "));
            CHECK_HAS(table_of(p), " in compiles");
            tc_program_free(g);
        }
        json_free(j);
        free(written.data);
        tc_profile_free(p);
    }
    free(a);
    free(b);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* ---- the orders of the table ---- */

/* The kernels of the table's rows, by the op of their name, and their share of the time. */
static int rows_of(const tc_profile *p, tc_sort sort, int most, char names[4][8], double shares[4])
{
    static char text[20000];
    int n = 0;
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_profile_table(p, file, sort, most), TC_OK);
    fclose(file);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *kernel = strstr(line, "tc_k_"), *share = strchr(line, '%');
        if (kernel && share && n < 4) {
            while (share > line && share[-1] != ' ') {
                share--;
            }
            snprintf(names[n], sizeof(names[n]), "%.*s", (int)strcspn(kernel + 5, "_ "),
                     kernel + 5);
            shares[n++] = atof(share);
        }
    }
    return n;
}

/* Three kernels, each first in a different order: a subtraction of most bytes, a product of most
 * flops, and a sine that runs most often. */
TEST(rows_of_the_table_are_in_the_order_that_was_asked_for)
{
    enum { MANY = 1 << 18, SIDE = 128, RUNS = 20 };
    static const struct {
        tc_sort sort;
        const char *first, *second, *third;
    } orders[] = {{TC_BY_CALLS, "sin", "sub", "contract"},
                  {TC_BY_BYTES, "sub", "contract", "sin"},
                  {TC_BY_FLOPS, "contract", "sub", "sin"},
                  {TC_BY_NAME, "contract", "sin", "sub"},
                  {TC_BY_ORDER, "sub", "sin", "contract"}};
    static float many[MANY], square[SIDE * SIDE], more[MANY];
    tc_ctx *ctx;
    tc_profile *p;
    tc_program *f[3];
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor a = tc_input(ctx, "a", TC_F32, SIDE, SIDE);
    REQUIRE(tc_compile(tc_sub(tc_input(ctx, "x", TC_F32, MANY), 1), &f[0]) == TC_OK);
    REQUIRE(tc_compile(tc_sin(tc_input(ctx, "y", TC_F32, LENGTH)), &f[1]) == TC_OK);
    REQUIRE(tc_compile(tc_matmul(a, a), &f[2]) == TC_OK);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < RUNS; i++) {
        if (i < 2) {
            tc_run(f[0], TC_BUFS(TC_BUF(many, MANY)), TC_BUFS(TC_BUF(more, MANY)));
        }
        run(f[1]);
    }
    tc_run(f[2], TC_BUFS(TC_BUF(square, SIDE * SIDE)), TC_BUFS(TC_BUF(more, SIDE * SIDE)));
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    char names[4][8];
    double shares[4] = {0};
    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
        const char *want[] = {orders[i].first, orders[i].second, orders[i].third};
        CHECK_EQ_INT(rows_of(p, orders[i].sort, -1, names, shares), 3);
        for (int r = 0; r < 3; r++) {
            CHECK_MSG(!strncmp(names[r], want[r], 7), "order %d, row %d: %s, expected %s",
                      (int)orders[i].sort, r, names[r], want[r]);
        }
        CHECK_EQ_INT(rows_of(p, orders[i].sort, 1, names, shares), 1);
        CHECK_MSG(!strncmp(names[0], want[0], 7), "order %d: %s", (int)orders[i].sort, names[0]);
    }
    CHECK_EQ_INT(rows_of(p, TC_BY_TIME, 0, names, shares), 3);
    CHECK(shares[0] >= shares[1] && shares[1] >= shares[2]);
    tc_profile_free(p);
    for (int i = 0; i < 3; i++) {
        tc_program_free(f[i]);
    }
    tc_ctx_free(ctx);
}

/* Nanoseconds of the kernels of that name in the records. */
static double recorded_ns(const tc_profile *p)
{
    double ns = 0;
    for (int64_t i = 0; i < p->threads[0].n; i++) {
        const tci_record *r = &p->threads[0].records[i];
        ns += r->kind == TCI_RECORD_KERNEL ? (double)(r->end_ns - r->begin_ns) : 0;
    }
    return ns;
}

/* The roofline time ("at best ...") that tc_explain gives for the only kernel. */
static double best_ns_of(const tc_program *f)
{
    double best = NAN;
    char unit[3] = "";
    const char *at = strstr(f->code->kernels[0].note, "at best ");
    CHECK(at && sscanf(at, "at best %lf %2s", &best, unit) == 2);
    return best * (!strcmp(unit, "ms") ? 1e6 : !strcmp(unit, "us") ? 1e3 : 1);
}

/* A product of M x K by K x N has 2 M K N operations on (M K + K N + M N) elements. */
TEST(a_row_says_rates_line_and_region_and_an_event_the_counts)
{
    enum { M = 192, K = 256, N = 128, RUNS = 7, FLOPS = 2 * M * K * N };
    enum { BYTES = 4 * (M * K + K * N + M * N) };
    static float a[M * K], b[K * N], c[M * N];
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f;
    tc_profile *p;
    char want[100], text[4000];
    tc_tensor x = tc_input(ctx, "a", TC_F32, M, K), w = tc_input(ctx, "b", TC_F32, K, N);
    tc_region_begin(ctx, "layer2");
    tc_region_begin(ctx, "proj");
    int line = __LINE__ + 1;
    tc_tensor y = tc_matmul(x, w);
    tc_region_end(ctx);
    tc_region_end(ctx);
    REQUIRE(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y), &(tc_options){.name = "net"}, &f) ==
            TC_OK);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < RUNS; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(a, M * K), TC_BUF(b, K * N)),
                            TC_BUFS(TC_BUF(c, M * N))),
                     TC_OK);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    double ns = recorded_ns(p), share, rate, flops, limit;
    long long calls;
    snprintf(text, sizeof(text), "%s", table_of(p));
    const char *row = strchr(text, '\n'), *percent = row ? strchr(row, '%') : NULL;
    REQUIRE(percent != NULL);
    while (percent[-1] != ' ') {
        percent--;
    }
    char mean[40], unit[8], kernel[100];
    int n = sscanf(percent, "%lf%% %lld %39s %7s %lf %lf %lf%% %99s", &share, &calls, mean, unit,
                   &rate, &flops, &limit, kernel);
    REQUIRE(n == 8);
    CHECK_CLOSE(share, 100, 0);
    CHECK_EQ_INT(calls, RUNS);
    double scale = !strcmp(unit, "ms") ? 1e6 : !strcmp(unit, "us") ? 1e3 : 1;
    CHECK_CLOSE(atof(mean) * scale, ns / RUNS, 0.06);
    CHECK_CLOSE(rate, RUNS * (double)BYTES / ns, 0.051 / fmax(1, rate));
    CHECK_CLOSE(flops, RUNS * (double)FLOPS / ns, 0.051 / fmax(1, flops));
    CHECK(fabs(limit - 100 * RUNS * best_ns_of(f) / ns) < 0.5 + 0.06 * limit);
    CHECK(limit > 0 && !strncmp(kernel, "tc_k_", 5));
    snprintf(want, sizeof(want), "  net: test_profile.c:%d tc_matmul, layer2.proj\n", line);
    CHECK_HAS(row, want);
    json *j = timeline(p);
    int events = 0;
    for (const json *e = json_get(j, "traceEvents")->first; e; e = e->next) {
        const json *args = json_get(e, "args");
        if (is(e, "kernel")) {
            events++;
            CHECK_EQ_INT(json_get(args, "flops")->integer, FLOPS);
            CHECK_EQ_INT(json_get(args, "bytes")->integer, BYTES);
            CHECK_STR(string_of(args, "region"), "layer2.proj");
            snprintf(want, sizeof(want), "test_profile.c:%d tc_matmul", line);
            CHECK_STR(string_of(args, "line"), want);
            const json *operands = json_get(args, "operands");
            CHECK_STR(json_at(operands, 0)->string, "read f32 [192, 256]");
            CHECK_STR(json_at(operands, 1)->string, "read f32 [256, 128]");
            CHECK_STR(json_at(operands, 2)->string, "write f32 [192, 128]");
        }
    }
    CHECK_EQ_INT(events, RUNS);
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* The interpreter's kernels may have one name; each has a row of its own all the same. */
TEST(kernels_of_one_name_have_rows_of_their_own)
{
    enum { SIDE = 8, RUNS = 5 };
    begin();
    tc_ctx *ctx;
    tc_program *f;
    tc_profile *p;
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true, .fusion = -1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, SIDE, SIDE), w = tc_input(ctx, "w", TC_F32, SIDE, 1);
    int line = __LINE__ + 1;
    tc_tensor y = tc_matmul(x, x);
    y = tc_matmul(y, w);
    REQUIRE(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y), NULL, &f) == TC_OK);
    REQUIRE(f->code->n_steps == 2);
    CHECK_STR(f->code->kernels[0].symbol, f->code->kernels[1].symbol);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < RUNS; i++) {
        tc_run(f, TC_BUFS(TC_BUF(in, SIDE * SIDE), TC_BUF(in, SIDE)), TC_BUFS(TC_BUF(out, SIDE)));
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    char names[4][8];
    double shares[4] = {0};
    CHECK_EQ_INT(rows_of(p, TC_BY_TIME, -1, names, shares), 2);
    for (int i = 0; i < 2; i++) {
        char want[60];
        snprintf(want, sizeof(want), "test_profile.c:%d tc_matmul", line + i);
        CHECK_HAS(table_of(p), want);
    }
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* ---- threads ---- */

static void *many_runs(void *f)
{
    tc_mark_begin("thread");
    for (int i = 0; i < 20; i++) {
        tc_run(f, TC_BUFS(TC_BUF(in, LENGTH)), TC_BUFS(TC_BUF((float[LENGTH]){0}, LENGTH)));
    }
    tc_mark_end();
    return NULL;
}

TEST(threads_have_tracks_of_their_own_also_after_one_ended)
{
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "both");
    tc_profile *p;
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < 3; i++) { /* one after the other: the system's numbers are used again */
        pthread_t t;
        REQUIRE(pthread_create(&t, NULL, many_runs, f) == 0);
        pthread_join(t, NULL);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    json *j = timeline(p);
    double tids[3];
    int n = 0;
    for (const json *e = json_get(j, "traceEvents")->first; e && n < 3; e = e->next) {
        if (is(e, "mark")) {
            tids[n++] = number_of(e, "tid");
        }
    }
    CHECK_EQ_INT(n, 3);
    CHECK(tids[0] != tids[1] && tids[1] != tids[2] && tids[0] != tids[2]);
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* The track of that name; NAN: there is none, or there are two. */
static double track_named(const json *j, const char *name)
{
    double tid = NAN;
    int n = 0;
    for (const json *e = json_get(j, "traceEvents")->first; e; e = e->next) {
        const char *is_named = string_of(json_get(e, "args"), "name");
        size_t length = strlen(name);
        bool same = !strncmp(is_named, name, length) &&
                    (!is_named[length] || !strncmp(is_named + length, " (", 2));
        if (!strcmp(string_of(e, "name"), "thread_name") && same) {
            tid = number_of(e, "tid");
            n++;
        }
    }
    return n == 1 ? tid : NAN;
}

TEST(the_thread_of_a_queue_has_a_named_track_with_its_runs)
{
    enum { QUEUES = 2, RUNS = 3 };
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "queued");
    tc_profile *p;
    static float results[QUEUES][LENGTH];
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int q = 0; q < QUEUES; q++) { /* one after the other, so that a thread's number is free */
        tc_queue *queue;
        REQUIRE(tc_queue_make(&queue) == TC_OK);
        for (int i = 0; i < RUNS; i++) {
            CHECK_EQ_INT(tc_run_async(f, queue, TC_BUFS(TC_BUF(in, LENGTH)),
                                      TC_BUFS(TC_BUF(results[q], LENGTH)), NULL),
                         TC_OK);
        }
        tc_queue_free(queue); /* when all is done */
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    json *j = timeline(p);
    for (int q = 0; q < QUEUES; q++) {
        char name[40];
        snprintf(name, sizeof(name), "tc queue %d", q + 1);
        double tid = track_named(j, name);
        int runs = 0, kernels = 0;
        CHECK_MSG(tid == tid, "no track, or two, of '%s'", name);
        for (const json *e = json_get(j, "traceEvents")->first; e; e = e->next) {
            runs += is(e, "run") && number_of(e, "tid") == tid;
            kernels += is(e, "kernel") && number_of(e, "tid") == tid;
        }
        CHECK_EQ_INT(runs, RUNS);
        CHECK_EQ_INT(kernels, RUNS * KERNELS);
    }
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* ---- compiles ---- */

static void count_files(void *user, const tc_progress *progress)
{
    int *files = user;
    *files = progress->files > *files ? progress->files : *files;
}

/* A compiler that only sleeps: the spans of its processes are as long, on tracks of their own, in
 * the phase of the compile. */
TEST(each_process_of_the_compiler_is_a_span_named_by_its_file)
{
    enum { PROGRAMS = 40 };
    begin();
    char path[600];
    snprintf(path, sizeof(path), "%s", in_dir("slowcc"));
    FILE *script = fopen(path, "w");
    REQUIRE(script != NULL);
    fputs("#!/bin/sh\nsleep 0.1\nexit 1\n", script);
    fclose(script);
    chmod(path, 0700);
    int files = 0, spans = 0, inside = 0;
    tc_options o = {.backend = "cpu",
                    .cc = path,
                    .no_disk_cache = true,
                    .fallback = TC_FALLBACK_REFUSE,
                    .progress = count_files,
                    .progress_user = &files};
    tc_ctx *ctx;
    tc_profile *p;
    tc_job jobs[PROGRAMS] = {{{NULL, 0}, {NULL, 0}, NULL, TC_OK}};
    tc_program *f[PROGRAMS];
    tc_tensor x[PROGRAMS], y[PROGRAMS];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < PROGRAMS; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, 60 + i);
        y[i] = tc_softmax(tc_add(tc_mul(tc_sin(x[i]), 0.37), tc_erf(x[i])), -1);
        jobs[i] = (tc_job){{&x[i], 1}, {&y[i], 1}, &f[i], TC_OK};
    }
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    CHECK_EQ_INT(tc_compile_many(jobs, PROGRAMS, NULL), TC_ERR_COMPILER);
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    json *j = timeline(p);
    const json *events = json_get(j, "traceEvents"), *phase = NULL;
    for (const json *e = events->first; e; e = e->next) {
        phase = is(e, "compile") && !strcmp(string_of(e, "name"), "compiler") ? e : phase;
    }
    REQUIRE(phase != NULL);
    for (int i = 0; i < files; i++) {
        char name[40];
        snprintf(name, sizeof(name), "compiler tc_%d.c", i);
        for (const json *e = events->first; e; e = e->next) {
            if (is(e, "compile") && !strcmp(string_of(e, "name"), name)) {
                double begins = number_of(e, "ts") - number_of(phase, "ts");
                spans++;
                CHECK(number_of(e, "dur") >= 1e5);
                inside += begins >= -0.001 &&
                          begins + number_of(e, "dur") <= number_of(phase, "dur") + 0.001;
            }
        }
    }
    static const char *const phases[] = {"key", "rewrite", "plan", "lower", "emit"};
    for (int i = 0; i < 5; i++) { /* the names of tc_compile_times */
        bool drawn = false;
        for (const json *e = events->first; e; e = e->next) {
            drawn = drawn || (is(e, "compile") && !strcmp(string_of(e, "name"), phases[i]));
        }
        CHECK_MSG(drawn, "no span of the phase '%s'", phases[i]);
    }
    CHECK(files > 1 || tci_os_cpu_count() == 1);
    CHECK_EQ_INT(spans, files);
    CHECK_EQ_INT(inside, files);
    for (int i = 1; i < files; i++) {
        char name[40];
        snprintf(name, sizeof(name), "C compiler %d", i + 1);
        CHECK(track_named(j, name) == track_named(j, name));
    }
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_ctx_free(ctx);
    end();
}

TEST(parts_of_a_kernel_are_drawn_where_they_ran)
{
    begin();
    enum { MANY = 1 << 20, RUNS = 10, ATTEMPTS = 50 };
    tc_ctx *ctx = context(2);
    tc_program *f;
    tc_profile *p;
    float *a = calloc(MANY, sizeof(float)), *b = calloc(MANY, sizeof(float));
    REQUIRE(a && b);
    REQUIRE(tc_compile(tc_exp(tc_sin(tc_input(ctx, "x", TC_F32, MANY))), &f) == TC_OK);
    bool both = false; /* a busy machine may give the second thread no time in some runs */
    for (int attempt = 0; attempt < ATTEMPTS && !both; attempt++) {
        REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
        for (int i = 0; i < RUNS; i++) {
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(a, MANY)), TC_BUFS(TC_BUF(b, MANY))), TC_OK);
        }
        CHECK_EQ_INT(tc_profile_end(p), TC_OK);
        json *j = timeline(p);
        const json *events = json_get(j, "traceEvents");
        double tids[2] = {NAN, NAN};
        int parts = 0;
        for (const json *e = events->first; e; e = e->next) {
            if (is(e, "part")) {
                double tid = number_of(e, "tid");
                tids[0] = isnan(tids[0]) ? tid : tids[0];
                tids[1] = tid != tids[0] ? tid : tids[1];
                parts++;
            }
        }
        CHECK(parts >= RUNS);
        both = !isnan(tids[1]);
        json_free(j);
        free(written.data);
        tc_profile_free(p);
    }
    CHECK_MSG(both, "all parts are on one track");
    free(a);
    free(b);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* The kernel that begins where an end of a flow is. */
static const json *kernel_at(const json *events, const json *end)
{
    for (const json *e = events->first; e; e = e->next) {
        if (is(e, "kernel") && number_of(e, "tid") == number_of(end, "tid") &&
            number_of(e, "ts") == number_of(end, "ts")) {
            return e;
        }
    }
    return NULL;
}

/* A flow joins a kernel of the backward pass with one of the forward pass that is of its line. */
TEST(the_backward_pass_flows_from_the_forward_pass)
{
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f;
    tc_profile *p;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 8, 8), w = tc_input(ctx, "w", TC_F32, 8, 8), g;
    tc_region_begin(ctx, "head");
    tc_tensor y = tc_matmul(x, w);
    y = tc_materialize(tc_tanh(y));
    y = tc_mul(y, y);
    tc_region_end(ctx);
    REQUIRE(tc_grad(tc_sum(y, TC_ALL, 0), &w, 1, &g) == TC_OK);
    REQUIRE(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(g), &(tc_options){.fusion = -1}, &f) ==
            TC_OK);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, LENGTH), TC_BUF(in, LENGTH)),
                        TC_BUFS(TC_BUF(out, LENGTH))),
                 TC_OK);
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    json *j = timeline(p);
    int begins = 0, ends = 0, joined = 0;
    const json *events = json_get(j, "traceEvents");
    for (const json *e = events->first; e; e = e->next) {
        if (!strcmp(string_of(e, "cat"), "backward")) {
            begins += !strcmp(string_of(e, "ph"), "s");
            ends += !strcmp(string_of(e, "ph"), "f");
        }
        if (!strcmp(string_of(e, "cat"), "backward") && !strcmp(string_of(e, "ph"), "s")) {
            const json *from = kernel_at(events, e), *to = NULL;
            for (const json *o = events->first; o; o = o->next) {
                bool same = !strcmp(string_of(o, "id"), string_of(e, "id"));
                to = same && !strcmp(string_of(o, "ph"), "f") ? kernel_at(events, o) : to;
            }
            REQUIRE(from && to);
            const char *a = string_of(json_get(from, "args"), "line");
            const char *b = string_of(json_get(to, "args"), "line");
            CHECK_MSG(!strncmp(a, b, strcspn(a, " ")) && strcspn(a, " ") > 14, "%s, %s", a, b);
            CHECK_STR(string_of(json_get(from, "args"), "region"), "head");
            CHECK_STR(string_of(json_get(to, "args"), "region"), "backward of head");
            CHECK(number_of(from, "ts") < number_of(to, "ts"));
            joined++;
        }
    }
    CHECK(begins >= 1 && begins == ends && begins == joined);
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(of_ten_million_records_the_oldest_are_dropped_and_counted)
{
    enum { MANY = 10000000 };
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "endless");
    tc_profile *p;
    char text[20000] = "";
    REQUIRE(tc_profile_begin(&(tc_profile_options){.megabytes = 1}, &p) == TC_OK);
    for (int i = 0; i < MANY; i++) {
        tc_mark_begin("spin");
        tc_mark_end();
    }
    run(f);
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    CHECK_EQ_INT(p->dropped + p->threads[0].n, MANY + KERNELS + 1);
    CHECK(p->threads[0].n * (int64_t)sizeof(tci_record) <= 1 << 20);
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_profile_table(p, file, TC_BY_TIME, 10), TC_OK);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    CHECK_HAS(text, "tc_k_sin");
    CHECK_HAS(text, "endless: test_profile.c:");
    CHECK_HAS(text, "records were dropped");
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* A name may have any bytes: JSON gets U+FFFD for those that are not UTF-8, a row stays a line. */
TEST(names_of_any_bytes_leave_json_and_rows_whole)
{
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "two\nlines \xc3\xa9 \xff \xed\xa0\x80");
    tc_profile *p;
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    tc_mark_begin("cut \xe2\x82");
    run(f);
    tc_mark_end();
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    json *j = timeline(p);
    const char *text = (const char *)written.data;
    CHECK_HAS(text, "two\\u000alines \xc3\xa9 \\ufffd \\ufffd\\ufffd\\ufffd");
    CHECK_HAS(text, "\"cut \\ufffd\\ufffd\"");
    CHECK(!strpbrk(text, "\xff\xed\xe2"));
    CHECK_HAS(table_of(p), "  two?lines ");
    json_free(j);
    free(written.data);
    static char told[100000];
    FILE *file = fmemopen(told, sizeof(told), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_explain_as(f, file, &(tc_explain_options){.json = true}), TC_OK);
    fclose(file);
    CHECK_HAS(told, "\"program\":\"two\\u000alines \xc3\xa9 \\ufffd \\ufffd\\ufffd\\ufffd\"");
    CHECK(!strpbrk(told, "\xff\xed"));
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(mistakes_are_told_and_the_run_goes_on)
{
    begin();
    tc_ctx *ctx = context(1);
    tc_program *f = chain(ctx, "train");
    tc_profile *p, *second;
    CHECK_EQ_INT(tc_profile_begin(NULL, NULL), TC_ERR_ARGUMENT);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    CHECK_EQ_INT(tc_profile_begin(NULL, &second), TC_ERR_BUSY);
    CHECK(second == NULL);
    tc_mark_end(); /* of none */
    for (int i = 0; i < 200; i++) {
        tc_mark_begin("deep");
    }
    run(f);
    for (int i = 0; i < 200; i++) {
        tc_mark_end();
    }
    CHECK_STR(tc_error(p), "");
    CHECK_EQ_INT(tc_profile_write(p, in_dir("t.json")), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error(p), "tc_profile_write: the profile has not ended: expected tc_profile_end "
                           "before");
    CHECK_EQ_INT(tc_profile_table(p, stdout, TC_BY_TIME, 0), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(p), "tc_profile_table: the profile has not ended");
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown(); /* the names are kept for the profile */
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    CHECK_EQ_INT(tc_profile_end(p), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error(p), "tc_profile_end: it has ended before");
    CHECK_EQ_INT(tc_profile_step(p), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error((const tc_profile *)p), "tc_profile_step: the profile has ended");
    CHECK_EQ_INT(tc_profile_write(p, NULL), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(p), "the path is NULL");
    CHECK_EQ_INT(tc_profile_write(p, in_dir("none/t.json")), TC_ERR_IO);
    CHECK_HAS(tc_error(p), "none/t.json' cannot be written: No such file or directory");
    CHECK_HAS(tc_error((tc_profile *)NULL), "the profile is NULL");
    CHECK_EQ_INT(tc_profile_write(p, "/dev/full/t.json"), TC_ERR_IO);
    json *j = timeline(p);
    CHECK_HAS((char *)written.data, "\"name\":\"deep\"");
    json_free(j);
    free(written.data);
    tc_profile_free(p);
    tc_profile_free(NULL);
    end();
}

/* A disk without room: the file that was there stays, nothing else is left, and runs go on. */
static int on_a_full_disk(void)
{
    tc_ctx *ctx;
    tc_profile *p;
    tc_options o = default_options();
    struct rlimit few = {4096, 4096};
    o.trace = in_dir("trace.json");
    if (tc_ctx_make(&ctx, &o)) {
        return 2;
    }
    tc_program *f = chain(ctx, "train");
    tc_shutdown(); /* ends the trace */
    if (tc_profile_begin(NULL, &p)) {
        return 3;
    }
    run(f);
    if (tc_profile_end(p) || tc_profile_write(p, in_dir("t.json"))) {
        return 4;
    }
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &few);
    bool refused = tc_profile_write(p, in_dir("t.json")) == TC_ERR_IO &&
                   tc_report(f, in_dir("p.html")) == TC_ERR_IO;
    tc_profile_free(p);
    run(f);
    return refused && out[0] == in[0] ? 0 : 5;
}

TEST(a_full_disk_is_told_and_leaves_the_old_file)
{
    begin();
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        _exit(on_a_full_disk());
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    written = read_file(in_dir("t.json"));
    written.data[written.n] = 0;
    json *j = json_parse((char *)written.data);
    CHECK(written.n > 4096 && j && json_get(j, "traceEvents"));
    CHECK(access(in_dir("p.html"), F_OK) != 0);
    json_free(j);
    free(written.data);
    end();
}

/* /proc takes no files, not even those of root. */
TEST(a_folder_that_takes_no_files_stops_no_run)
{
    begin();
    tc_ctx *ctx;
    tc_profile *p;
    tc_options o = default_options();
    o.trace = "/proc/tc-trace.json";
    o.dump = "html,plan";
    o.dump_dir = "/proc/tc-dump";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = chain(ctx, "train");
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK); /* the trace was not begun */
    run(f);
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    CHECK_EQ_INT(tc_profile_write(p, "/proc/t.json"), TC_ERR_IO);
    CHECK_EQ_INT(tc_report(f, "/proc/p.html"), TC_ERR_IO);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* ---- TC_TRACE ---- */

typedef void ending(tc_program *f);

static void segfault(tc_program *f)
{
    (void)f;
    *(volatile int *)(uintptr_t)16 = 1;
}

static void terminated(tc_program *f)
{
    (void)f;
    kill(getpid(), SIGTERM);
    pause();
}

static void *sends_again(void *none)
{
    (void)none;
    kill(getpid(), SIGTERM);
    return NULL;
}

/* As timeout(1) does, and another thread gets the second one. */
static void terminated_twice(tc_program *f)
{
    pthread_t other;
    (void)f;
    pthread_create(&other, NULL, sends_again, NULL);
    raise(SIGTERM);
}

/* Another thread goes on running meanwhile. */
static void aborted(tc_program *f)
{
    pthread_t other;
    pthread_create(&other, NULL, many_runs, f);
    abort();
}

static void killed(tc_program *f)
{
    (void)f;
    raise(SIGKILL);
}

static void ends_well(tc_program *f)
{
    (void)f;
    exit(0);
}

static void handled(int number)
{
    _exit(number == SIGTERM ? 7 : 8);
}

static void has_a_handler(tc_program *f)
{
    (void)f;
    raise(SIGTERM);
}

/* A process that traces, runs twice and ends so. Its status. */
static int traced_until(ending *end, void (*handler)(int))
{
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        tc_ctx *ctx;
        tc_options o = default_options();
        o.trace = in_dir("crash.json");
        o.threads = 1;
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGTERM, handler);
        if (tc_ctx_make(&ctx, &o)) {
            _exit(9);
        }
        tc_program *f = chain(ctx, "doomed");
        run(f);
        tc_mark_begin("last words");
        run(f);
        tc_mark_end();
        end(f);
        _exit(9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

static void count_traced(int *kernels, int *marks)
{
    bytes text = read_file(in_dir("crash.json"));
    text.data[text.n] = 0;
    json *j = json_parse((char *)text.data);
    REQUIRE(j != NULL);
    const json *events = j->kind == JSON_OBJECT ? json_get(j, "traceEvents") : j;
    *kernels = *marks = 0;
    for (const json *e = events->first; e; e = e->next) {
        *kernels += is(e, "kernel");
        *marks += is(e, "mark") && !strcmp(string_of(e, "name"), "last words");
    }
    json_free(j);
    free(text.data);
}

TEST(a_trace_is_whole_when_a_signal_ends_the_process)
{
    begin();
    static const struct {
        ending *end;
        int by;
    } rows[] = {{segfault, SIGSEGV},
                {terminated, SIGTERM},
                {terminated_twice, SIGTERM},
                {aborted, SIGABRT},
                {ends_well, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int kernels, marks, status = traced_until(rows[i].end, SIG_DFL);
        if (rows[i].by) {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == rows[i].by);
        } else {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        count_traced(&kernels, &marks);
        CHECK(kernels >= 2 * KERNELS && marks == 1);
    }
    end();
}

/* A handler of the program's own stays, and SIGKILL leaves a list without events. */
TEST(a_trace_takes_no_signal_from_the_program)
{
    begin();
    int kernels, marks, status = traced_until(has_a_handler, handled);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = traced_until(has_a_handler, SIG_IGN);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    status = traced_until(killed, SIG_DFL);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    count_traced(&kernels, &marks);
    CHECK(kernels == 0);
    end();
}

TEST_MAIN
