/* tests/cuda/test_profile.c - profiles where there is a GPU: what test_driver_queues.c asks of the
 * calls, here of the machine's clocks. */
#define TC_CUDA
#include "inside.h"

#include "json.h"
#include "tc_test.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 1024, LAYERS = 8, RUNS = 6 };

static tc_ctx *context(void)
{
    tc_ctx *ctx = NULL;
    void *memory = NULL;
    bool has = tc_cuda_alloc(64, &memory) == TC_OK;
    tc_cuda_free(memory);
    if (!has) {
        SKIP("there is no GPU");
    }
    tc_options o = {.backend = "cuda", .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

/* A bf16 network of square layers; nothing of it is copied from or to the host but x and y. */
static tc_program *network(tc_ctx *ctx, const char *name)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_BF16, SIDE, SIDE), y = x;
    for (int i = 0; i < LAYERS; i++) {
        y = tc_relu(tc_add(tc_matmul(y, x), 0.25));
    }
    tc_options o = {.name = name};
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f) == TC_OK, "%s", tc_error(ctx));
    return f;
}

/* A matrix of bf16 at the host. */
static tc_buf matrix(uint16_t *data)
{
    return (tc_buf){.data = data, .n = (int64_t)sizeof(*data) * SIDE * SIDE, .dtype = -1};
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
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

/* Events of a category: how many, and how long together. */
static int sum_of(const json *events, const char *category, double *us)
{
    int n = 0;
    *us = 0;
    for (const json *e = events->first; e; e = e->next) {
        if (!strcmp(string_of(e, "cat"), category) && !strcmp(string_of(e, "ph"), "X")) {
            *us += number_of(e, "dur");
            n++;
        }
    }
    return n;
}

static json *timeline(const tc_profile *p, tci_str *text)
{
    tci_profile_json(text, p);
    json *j = json_parse(text->text);
    REQUIRE(j && json_get(j, "traceEvents"));
    return j;
}

/* ---- a trace after a signal ---- */

enum { NO_GPU = 77 };

/* In a child, which traces: runs that are timed kernel by kernel, recorded ones, and one on a queue
 * that no thread waits for; then a signal ends it. */
static int trace_until_signal(const char *path, int number)
{
    static uint16_t in[SIDE * SIDE], out[2][SIDE * SIDE];
    tc_ctx *ctx = NULL;
    tc_queue *q = NULL;
    tc_event *event = NULL;
    void *memory = NULL;
    signal(number, SIG_DFL); /* a sanitizer has a handler of its own */
    if (tc_cuda_alloc(64, &memory)) {
        return NO_GPU;
    }
    tc_options o = {.backend = "cuda", .fallback = TC_FALLBACK_REFUSE, .trace = path};
    tc_program *f = tc_ctx_make(&ctx, &o) ? NULL : network(ctx, "doomed");
    for (int i = 0; f && i < RUNS; i++) {
        if (tc_run(f, TC_BUFS(matrix(in)), TC_BUFS(matrix(out[0])))) {
            return 2;
        }
    }
    if (!f || tc_queue_make(&q) ||
        tc_run_async(f, q, TC_BUFS(matrix(in)), TC_BUFS(matrix(out[1])), &event)) {
        return 3;
    }
    if (number == SIGSEGV) {
        *(volatile int *)(uintptr_t)16 = 1;
    }
    raise(number);
    return 4;
}

/* The first test: a child of a process that has used the GPU has none. */
TEST(a_trace_has_the_kernels_of_the_device_when_a_signal_ends_the_process)
{
    static const int by[] = {SIGTERM, SIGSEGV, SIGABRT};
    for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++) {
        char path[64];
        int ended = -1;
        snprintf(path, sizeof(path), "/tmp/tc-trace-%d-%d.json", (int)getpid(), by[i]);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            struct rlimit no_core = {0, 0};
            setrlimit(RLIMIT_CORE, &no_core);
            tct_exit(trace_until_signal(path, by[i]));
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        if (WIFEXITED(ended) && WEXITSTATUS(ended) == NO_GPU) {
            SKIP("there is no GPU");
        }
        CHECK_MSG(WIFSIGNALED(ended) && WTERMSIG(ended) == by[i], "status %d", ended);
        tci_str text = {0};
        REQUIRE(tci_os_read_file(path, &text, NULL));
        json *j = json_parse(tci_str_text(&text));
        REQUIRE(j && j->kind == JSON_OBJECT);
        const json *events = json_get(j, "traceEvents");
        double us, graphs;
        int singles = sum_of(events, "device", &us);
        CHECK_MSG(singles >= LAYERS && us > 0, "%d kernels, %g us", singles, us);
        int n = sum_of(events, "graph", &graphs);
        CHECK_MSG(n >= RUNS - 2 && graphs > 0, "%d recorded runs, %g us", n, graphs);
        CHECK(sum_of(events, "share", &us) >= n * LAYERS);
        printf("  signal %d: %d kernels one by one, %d recorded runs\n", by[i], singles, n);
        json_free(j);
        tci_str_free(&text);
        unlink(path);
    }
}

/* The device's times are within the host's, kernels of a recorded run have their shares of it, and
 * a replay is not longer than its kernels one by one. */
TEST(kernels_of_a_network_add_up_to_the_time_that_passed)
{
    static uint16_t in[SIDE * SIDE], out[SIDE * SIDE];
    tc_ctx *ctx = context();
    tc_program *f = network(ctx, "layers");
    tc_profile *p;
    REQUIRE(f != NULL);
    tc_bufs from = TC_BUFS(matrix(in)), to = TC_BUFS(matrix(out));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_run(f, from, to), TC_OK);
    }
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    double wall = now_us();
    for (int i = 0; i < RUNS; i++) {
        CHECK_EQ_INT(tc_run(f, from, to), TC_OK);
    }
    wall = now_us() - wall;
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    tci_str text = {0};
    json *j = timeline(p, &text);
    const json *events = json_get(j, "traceEvents");
    double single, graphs, shares, runs;
    int n_single = sum_of(events, "device", &single), n_shares = sum_of(events, "share", &shares);
    CHECK_EQ_INT(sum_of(events, "graph", &graphs), RUNS - 1);
    CHECK_EQ_INT(sum_of(events, "run", &runs), RUNS);
    CHECK(n_single >= LAYERS && n_shares == n_single * (RUNS - 1));
    CHECK_MSG(single > 0 && single + graphs <= wall, "%g + %g us of %g us", single, graphs, wall);
    CHECK_MSG(fabs(shares - graphs) < 0.01 * graphs + 1, "%g us of %g us", shares, graphs);
    CHECK_MSG(graphs / (RUNS - 1) < 1.5 * single + 50, "a replay takes %g us, its kernels %g us",
              graphs / (RUNS - 1), single);
    CHECK(runs <= wall);
    json_free(j);
    text.n = 0;
    tci_summary_json(&text, f, &(tc_explain_options){.json = true, .measure_ms = 200});
    double measured = 0;
    j = json_parse(text.text);
    REQUIRE(j && json_get(j, "kernels"));
    for (const json *k = json_get(j, "kernels")->first; k; k = k->next) {
        measured += number_of(k, "measured_ns") / 1e3;
    }
    CHECK_MSG(measured > 0.3 * single && measured < 1.5 * single, "measured %g us, drawn %g us",
              measured, single);
    json_free(j);
    tci_str_free(&text);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(two_queues_are_two_tracks)
{
    static uint16_t in[SIDE * SIDE], out[2][SIDE * SIDE];
    tc_ctx *ctx = context();
    tc_program *f[2] = {network(ctx, "left"), network(ctx, "right")};
    tc_queue *q[2];
    tc_event *done[2 * RUNS];
    tc_profile *p;
    REQUIRE(f[0] && f[1]);
    REQUIRE(tc_queue_make(&q[0]) == TC_OK && tc_queue_make(&q[1]) == TC_OK);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < 2 * RUNS; i++) {
        CHECK_EQ_INT(tc_run_async(f[i % 2], q[i % 2], TC_BUFS(matrix(in)),
                                  TC_BUFS(matrix(out[i % 2])), &done[i]),
                     TC_OK);
    }
    for (int i = 0; i < 2 * RUNS; i++) {
        CHECK_EQ_INT(tc_event_wait(done[i]), TC_OK);
        tc_event_free(done[i]);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    tci_str text = {0};
    json *j = timeline(p, &text);
    double graphs, last[2] = {-1, -1};
    CHECK(sum_of(json_get(j, "traceEvents"), "graph", &graphs) >= 2 * (RUNS - 3));
    int tracks = 0;
    double tids[2] = {0, 0};
    for (const json *e = json_get(j, "traceEvents")->first; e; e = e->next) {
        if (strcmp(string_of(e, "cat"), "graph")) {
            continue;
        }
        int at = tracks && tids[0] == number_of(e, "tid") ? 0 : 1;
        at = tracks ? at : 0;
        tracks = at >= tracks ? at + 1 : tracks;
        tids[at] = number_of(e, "tid");
        last[at] = fmax(last[at], number_of(e, "ts"));
    }
    CHECK_EQ_INT(tracks, 2);
    CHECK(last[0] > 0 && last[1] > 0);
    json_free(j);
    tci_str_free(&text);
    tc_profile_free(p);
    for (int i = 0; i < 2; i++) {
        tc_queue_free(q[i]);
        tc_program_free(f[i]);
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
