/* Queues, streams and profiles of the CUDA backend on a driver that only counts (fake_driver.h):
 * which calls it gets, in which order, and what a profile draws of them. Needs NVRTC. */
#ifndef __clang__
#pragma GCC optimize("O0") /* the whole library is in this file */
#endif
#define TC_CUDA
#define TCI_KEEP_OPTIMIZE
#define TC_IMPLEMENTATION
#include "tc.h"

#include "json.h"
#include "tc_test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_context.h"

/* ---- asynchronous runs ---- */

/* What the streams were given since `first`, in order, with letters for the streams: "cA rA wB". */
static const char *streams_since(int first, int context)
{
    static char text[1024];
    static const char letters[] = "ABCDEFGH";
    void *known[8] = {NULL};
    int n = 0, at = 0;
    for (int i = first; i < fake_n_log && at < 1000; i++) {
        int s = 0;
        while (s < n && known[s] != FAKE_LOG(i).stream) {
            s++;
        }
        n += s == n;
        known[s] = FAKE_LOG(i).stream;
        CHECK_EQ_INT(FAKE_LOG(i).context, context);
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%c%c", at ? " " : "",
                       FAKE_LOG(i).what, letters[s]);
    }
    return text;
}

/* Up, work and down have a stream each, and wait for each other by events alone. */
TEST(a_queue_has_streams_that_overlap)
{
    NEED_NVRTC();
    static float out[2][N * N];
    tc_ctx *ctx = context("async");
    REQUIRE(ctx != NULL);
    tc_program *f = chain(ctx, 5.0);
    tc_queue *q = NULL;
    tc_event *events[2] = {NULL, NULL};
    int misses = fake_context_misses, other, streams = fake_n_streams, made = fake_n_events;
    REQUIRE(f && tc_queue_make(&q) == TC_OK);
    fake_current = &other;
    out[0][5] = out[1][5] = 7;
    for (int i = 0; i < 2; i++) {
        int first = fake_n_log;
        CHECK_MSG(run_async(f, q, out[i], &events[i]) == TC_OK, "%s", tc_error(f));
        CHECK_STR(streams_since(first, 0), "cA rA wB kB rB wC cC rC wB rB");
        CHECK(fake_current == &other);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_INT(tc_event_wait(events[i]), TC_OK);
        CHECK(out[i][5] == 0); /* from memory of the driver's to the user's */
    }
    double ms = 0;
    CHECK_EQ_INT(tc_event_elapsed(events[0], events[1], &ms), TC_OK);
    CHECK(ms > 0 && fake_current == &other);
    CHECK_EQ_INT(fake_context_misses - misses, 0);
    CHECK_EQ_INT(fake_n_streams - streams, 3);
    tc_event_free(events[0]);
    tc_event_free(events[1]);
    tc_queue_free(q);
    tc_program_free(f);
    CHECK_EQ_INT(fake_n_streams, streams);
    CHECK_EQ_INT(fake_n_events, made);
    tc_ctx_free(ctx);
    fake_current = NULL;
}

/* Kernels of the queue go to the user's stream, and of others nothing does. */
TEST(a_stream_of_the_user_is_a_queue)
{
    NEED_NVRTC();
    static float out[N * N];
    tc_ctx *ctx = context("stream");
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    tc_program *f = chain(ctx, 6.0), *here = NULL;
    tc_queue *q = NULL;
    tc_event *e = NULL;
    int mine, first = fake_n_log, kernels = 0;
    REQUIRE(f && tc_cuda_queue(0, &mine, &q) == TC_OK);
    CHECK_EQ_INT(run_async(f, q, out, &e), TC_OK);
    CHECK_EQ_INT(tc_event_wait(e), TC_OK);
    for (int i = first; i < fake_n_log; i++) {
        kernels += FAKE_LOG(i).what == 'k';
        CHECK(FAKE_LOG(i).what != 'k' || FAKE_LOG(i).stream == &mine);
        CHECK(FAKE_LOG(i).what != 'c' || FAKE_LOG(i).stream != &mine);
    }
    CHECK(kernels == 1 && FAKE_LOG(fake_n_log - 1).stream == &mine);
    tc_event_free(e);
    tc_tensor x = tc_input(ctx, "x", TC_F32, N, N), y = tc_neg(x);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &here) == TC_OK);
    CHECK_EQ_INT(run_async(here, q, out, &e), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(here), "the queue is a stream of cuda, the program runs on interp");
    tc_queue_free(q);
    CHECK_EQ_INT(tc_cuda_queue(0, NULL, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_cuda_queue(7, NULL, &q), TC_ERR_BACKEND);
    tc_program_free(here);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A run whose input is what an earlier one brings down to the host goes up when that is there. */
TEST(a_queue_reads_what_it_wrote)
{
    NEED_NVRTC();
    static float in[N * N], between[N * N], out[N * N];
    tc_ctx *ctx = context("read-back");
    tc_program *f = chain(ctx, 7.0);
    tc_queue *q = NULL;
    REQUIRE(f && tc_queue_make(&q) == TC_OK);
    in[0] = 3;
    for (int round = 0; round < 20; round++) {
        int first = fake_n_log, uploads = 0;
        between[0] = 7;
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, N * N)), TC_BUFS(TC_BUF(between, N * N)),
                                  NULL),
                     TC_OK);
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(between, N * N)),
                                  TC_BUFS(TC_BUF(out, N * N)), NULL),
                     TC_OK);
        for (int i = first; i < fake_n_log; i++) {
            uploads += FAKE_LOG(i).what == 'c' && FAKE_LOG(i).first == 3;
            CHECK(FAKE_LOG(i).what != 'c' || FAKE_LOG(i).first != 7);
        }
        CHECK_EQ_INT(uploads, 1);
    }
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A parameter is one run's after the other: their kernels are in the order of the device's stream,
 * and a run that sets it has ended when the next one begins. */
TEST(a_queue_keeps_parameters_in_order)
{
    NEED_NVRTC();
    static float out[2 * N];
    static int64_t index[N];
    gatherer g;
    tc_queue *q = NULL;
    REQUIRE(make_gatherer(&g, "async-param") && tc_queue_make(&q) == TC_OK);
    CHECK_EQ_INT(run_gatherer(&g, out), TC_OK);
    void *main_stream = NULL;
    for (int i = 0; i < fake_n_log; i++) {
        main_stream = FAKE_LOG(i).what == 'k' ? FAKE_LOG(i).stream : main_stream;
    }
    int first = fake_n_log;
    fake_fault = 1 + N;
    tc_event *e = NULL;
    CHECK_EQ_INT(tc_run_async(g.f, q, TC_BUFS(TC_BUF(index, N)),
                              TC_BUFS(TC_BUF(out, N), TC_BUF(out + N, N)), &e),
                 TC_OK);
    CHECK_EQ_INT(tc_event_wait(e), TC_ERR_INDEX);
    fake_fault = 0;
    CHECK_HAS(tc_error(e), "is outside");
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(tc_run_async(g.f, q, TC_BUFS(TC_BUF(index, N)),
                               TC_BUFS(TC_BUF(out, N), TC_BUF(out + N, N)), NULL) == TC_OK,
                  "%s", tc_error(g.f));
    }
    for (int i = first; i < fake_n_log; i++) {
        CHECK(FAKE_LOG(i).what != 'k' || FAKE_LOG(i).stream == main_stream);
    }
    tc_event_free(e);
    tc_queue_free(q);
    CHECK(is_still(&g, 0));
    free_gatherer(&g);
}

/* The host calls the assertion when the run is submitted; its end may be another thread's. */
TEST(an_assertion_that_fails_is_told_by_the_event)
{
    NEED_NVRTC();
    static float in[N], out[N], three[N];
    gatherer g = {.ctx = context("async-assert")};
    tc_queue *q = NULL;
    REQUIRE(g.ctx && tc_queue_make(&q) == TC_OK);
    for (int i = 0; i < N; i++) {
        three[i] = 3;
    }
    g.p = tc_param(g.ctx, three, TC_F32, N);
    tc_tensor x = tc_input(g.ctx, "x", TC_F32, N);
    tc_tensor set = tc_assign(g.p, tc_mul(tc_assert_finite(x), 2));
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_neg(x), set), NULL, &g.f) == TC_OK);
    for (int round = 0; round < 4; round++) {
        tc_event *e = NULL;
        in[5] = round % 2 ? 1 : INFINITY;
        tc_status status = tc_run_async(g.f, q, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N)),
                                        &e);
        CHECK_EQ_INT(status, TC_OK);
        CHECK_EQ_INT(tc_event_wait(e), round % 2 ? TC_OK : TC_ERR_CHECK);
        if (round % 2 == 0) {
            CHECK_HAS(tc_error(e), "element 5 is infinite");
        }
        tc_event_free(e);
        CHECK(round > 0 || is_still(&g, 3));
    }
    in[5] = NAN;
    tc_bufs to = TC_BUFS(TC_BUF(out, N));
    CHECK_EQ_INT(tc_run(g.f, TC_BUFS(TC_BUF(in, N)), to), TC_ERR_CHECK);
    tc_queue_free(q);
    free_gatherer(&g);
}

/* Whatever call of the driver fails: it is told, at once or by the event, nothing is left behind,
 * the thread has its context, and the next run is good. */
TEST(every_call_of_an_asynchronous_run_may_fail)
{
    NEED_NVRTC();
    static const char *const functions[] = {"cuCtxGetCurrent",
                                            "cuStreamCreate",
                                            "cuEventCreate",
                                            "cuEventRecord",
                                            "cuStreamWaitEvent",
                                            "cuEventSynchronize",
                                            "cuMemcpyAsync",
                                            "cuMemAlloc_v2",
                                            "cuMemHostAlloc",
                                            "cuGraphLaunch",
                                            "cuGraphInstantiateWithFlags"};
    static float out[N * N];
    tc_ctx *ctx = context("async-fails");
    int streams = fake_n_streams, made = fake_n_events, blocks = fake_host_blocks, mine;
    fake_current = &mine;
    for (int i = 0; i < (int)(sizeof(functions) / sizeof(*functions)); i++) {
        int n_failed = 0, n_told = 0;
        for (bool failed = true; failed && n_failed < 60;) {
            tc_program *f = chain(ctx, 5.0);
            tc_queue *q = NULL;
            tc_event *e = NULL;
            REQUIRE(f && tc_queue_make(&q) == TC_OK);
            fake_fail_in = functions[i];
            fake_fail_after = n_failed;
            tc_status status = run_async(f, q, out, &e);
            bool told = status == TC_OK || strstr(tc_error(f), "CUDA_ERROR_FAKE");
            if (!status) {
                status = tc_event_wait(e);
                told = status == TC_OK || strstr(tc_error(e), "CUDA_ERROR_FAKE");
            }
            failed = fake_fail_after < 0;
            fake_fail_in = NULL;
            n_told += status != TC_OK;
            CHECK_MSG(told && (failed || status == TC_OK), "%s, call %d: status %d", functions[i],
                      n_failed, (int)status);
            CHECK_MSG(fake_current == &mine, "%s, call %d", functions[i], n_failed);
            tc_event_free(e);
            e = NULL;
            CHECK_MSG(run_async(f, q, out, &e) == TC_OK && tc_event_wait(e) == TC_OK, "%s, call %d",
                      functions[i], n_failed);
            tc_event_free(e);
            tc_queue_free(q);
            tc_program_free(f);
            n_failed += failed;
        }
        bool again = !strcmp(functions[i], "cuMemAlloc_v2"); /* memory is asked for twice */
        CHECK_MSG((n_told > 0 || again) && n_failed < 60, "%s: %d calls failed, %d runs",
                  functions[i], n_failed, n_told);
    }
    CHECK(fake_current == &mine);
    CHECK_EQ_INT(fake_n_streams, streams);
    CHECK_EQ_INT(fake_n_events, made);
    CHECK_EQ_INT(fake_host_blocks, blocks);
    fake_current = NULL;
    tc_ctx_free(ctx);
}

/* ---- profiles ---- */

typedef struct timeline {
    char *text;
    json *parsed;
    const json *events;
} timeline;

static timeline timeline_of(const tc_profile *p)
{
    tci_str text = {0};
    timeline t;
    tci_profile_json(&text, p);
    t.text = text.text;
    t.parsed = json_parse(t.text);
    REQUIRE(t.parsed != NULL);
    t.events = json_get(t.parsed, "traceEvents");
    REQUIRE(t.events != NULL);
    return t;
}

static void timeline_free(timeline *t)
{
    json_free(t->parsed);
    tci_heap_free(t->text);
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

static bool is_event(const json *e, const char *category, const char *phase)
{
    return !strcmp(string_of(e, "cat"), category) && !strcmp(string_of(e, "ph"), phase);
}

static int count_events(const timeline *t, const char *category, const char *phase)
{
    int n = 0;
    for (const json *e = t->events->first; e; e = e->next) {
        n += is_event(e, category, phase);
    }
    return n;
}

/* Each flow that begins at a launch ends once, at the begin of what a device ran. */
static void check_flows(const timeline *t)
{
    for (const json *s = t->events->first; s; s = s->next) {
        if (!is_event(s, "launch", "s")) {
            continue;
        }
        int ends = 0;
        for (const json *f = t->events->first; f; f = f->next) {
            bool ends_here = is_event(f, "launch", "f") &&
                             !strcmp(string_of(f, "id"), string_of(s, "id"));
            ends += ends_here;
            int spans = 0;
            for (const json *e = t->events->first; ends_here && e; e = e->next) {
                spans += (is_event(e, "device", "X") || is_event(e, "graph", "X")) &&
                         number_of(e, "ts") == number_of(f, "ts") &&
                         number_of(e, "tid") == number_of(f, "tid");
            }
            CHECK(!ends_here || spans == 1);
        }
        CHECK_EQ_INT(ends, 1);
    }
}

/* Time of the shares that are drawn in a recorded run, one after the other. */
static double shares_in(const timeline *t, const json *graph, int *n)
{
    double at = number_of(graph, "ts"), sum = 0;
    *n = 0;
    for (const json *e = graph->next; e; e = e->next) {
        if (is_event(e, "graph", "X")) {
            break;
        }
        if (is_event(e, "share", "X")) {
            CHECK(number_of(e, "tid") == number_of(graph, "tid"));
            CHECK(fabs(number_of(e, "ts") - at) < 0.01);
            at = number_of(e, "ts") + number_of(e, "dur");
            sum += number_of(e, "dur");
            ++*n;
        }
    }
    CHECK(t->parsed && at <= number_of(graph, "ts") + number_of(graph, "dur") + 0.001);
    return sum;
}

/* While a profile records, the first run of a program is launched one by one between events; later
 * ones are replayed, each as one span of the device's time, in which the kernels have the shares of
 * that run. */
TEST(a_profile_draws_recorded_runs_by_the_shares_of_an_unrecorded_one)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("profile");
    REQUIRE(ctx != NULL);
    tc_program *f = chain(ctx, 1.0);
    REQUIRE(f != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(run(f), TC_OK);
    }
    tc_profile *p;
    int graphs = fake_graph_launches, launches = fake_launches, events = fake_n_events;
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(run(f), TC_OK);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    CHECK_EQ_INT(fake_graph_launches, graphs + 2);
    CHECK_EQ_INT(fake_launches, launches + 10);
    CHECK_EQ_INT(fake_n_events, events);
    timeline t = timeline_of(p);
    CHECK_EQ_INT(count_events(&t, "device", "X"), 10);
    CHECK_EQ_INT(count_events(&t, "graph", "X"), 2);
    CHECK_EQ_INT(count_events(&t, "share", "X"), 20);
    CHECK_EQ_INT(count_events(&t, "launch", "s"), 12);
    check_flows(&t);
    for (const json *e = t.events->first; e; e = e->next) {
        if (is_event(e, "graph", "X")) {
            int n;
            double sum = shares_in(&t, e, &n);
            CHECK_HAS(string_of(e, "name"), "recorded run");
            CHECK(number_of(e, "dur") == 1000); /* one tick of the driver that counts */
            CHECK(fabs(sum - 1000) < 0.1 && n == 10);
        }
    }
    timeline_free(&t);
    char text[8000] = "";
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_profile_table(p, file, TC_BY_TIME, -1), TC_OK);
    fclose(file);
    CHECK_HAS(text, "cuda idle ");
    int64_t calls = 0;
    for (const char *line = text; (line = strchr(line, '\n')) && line[1];) {
        const char *share = strchr(++line, '%');
        calls += share && strstr(line, "tc_k_") ? strtol(share + 1, NULL, 10) : 0;
    }
    CHECK_EQ_INT(calls, 30);
    tc_profile_free(p);
    REQUIRE(tc_profile_begin(&(tc_profile_options){.no_device = true}, &p) == TC_OK);
    CHECK_EQ_INT(run(f), TC_OK);
    CHECK_EQ_INT(fake_graph_launches, graphs + 3);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A profile that begins before the first run takes no shares from it, since it loads code. */
TEST(shares_are_not_those_of_a_first_run)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("profile-first");
    REQUIRE(ctx != NULL);
    tc_profile *p;
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    tc_program *f = chain(ctx, 1.5);
    REQUIRE(f != NULL);
    int graphs = fake_graph_launches, launches = fake_launches;
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(run(f), TC_OK);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    CHECK_EQ_INT(fake_graph_launches, graphs + 2);
    CHECK_EQ_INT(fake_launches, launches + 20);
    timeline t = timeline_of(p);
    CHECK_EQ_INT(count_events(&t, "device", "X"), 20);
    CHECK_EQ_INT(count_events(&t, "graph", "X"), 2);
    timeline_free(&t);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Asynchronous runs of two queues are drawn on a track for each stream, also when the programs are
 * gone before the profile ends; the host waits for none of them. */
TEST(streams_have_tracks_of_their_own)
{
    NEED_NVRTC();
    static float in[N * N], out[4][N * N];
    tc_ctx *ctx = context("profile-streams");
    REQUIRE(ctx != NULL);
    tc_program *f[2] = {chain(ctx, 2.5), chain(ctx, 3.5)};
    tc_queue *q[2];
    tc_event *done[4];
    tc_profile *p;
    REQUIRE(f[0] && f[1]);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_INT(run(f[i]), TC_OK);
        REQUIRE(tc_queue_make(&q[i]) == TC_OK);
    }
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ_INT(run(f[i]), TC_OK);
    }
    int graphs = fake_graph_launches;
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(tc_run_async(f[i % 2], q[i % 2], TC_BUFS(TC_BUF(in, N * N)),
                                  TC_BUFS(TC_BUF(out[i], N * N)), &done[i]),
                     TC_OK);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(tc_event_wait(done[i]), TC_OK);
        tc_event_free(done[i]);
    }
    for (int i = 0; i < 2; i++) {
        tc_program_free(f[i]);
        tc_queue_free(q[i]);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    CHECK_EQ_INT(fake_graph_launches, graphs + 4);
    timeline t = timeline_of(p);
    double tids[4];
    int n = 0, named = 0;
    for (const json *e = t.events->first; e; e = e->next) {
        if (is_event(e, "graph", "X") && n < 4) {
            tids[n++] = number_of(e, "tid");
        }
        if (!strcmp(string_of(e, "name"), "thread_name") && number_of(e, "pid") == 2) {
            const char *name = string_of(json_get(e, "args"), "name");
            named += !strncmp(name, "cuda (idle ", 11) ||
                     !strncmp(name, "cuda stream 1 (idle ", 20) ||
                     !strncmp(name, "cuda stream 2 (idle ", 20);
        }
    }
    CHECK_EQ_INT(n, 4);
    CHECK_EQ_INT(named, 3);
    int streams = 1;
    for (int i = 1; i < n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) {
            seen = seen || tids[k] == tids[i];
        }
        streams += !seen;
    }
    CHECK_EQ_INT(streams, 2);
    CHECK_EQ_INT(count_events(&t, "share", "X"), 40);
    check_flows(&t);
    timeline_free(&t);
    tc_profile_free(p);
    tc_ctx_free(ctx);
}

/* In the second process, which traces: runs one by one, recorded, and on a queue that no thread
 * waits for; then a signal ends it. */
static int trace_until_signal(const char *path, int number)
{
    static float out[N * N];
    tc_ctx *ctx = NULL;
    tc_queue *q = NULL;
    tc_event *event = NULL;
    tc_options o = {.backend = "cuda",
                    .fallback = TC_FALLBACK_REFUSE,
                    .no_disk_cache = true,
                    .trace = path};
    signal(number, SIG_DFL); /* a sanitizer has a handler of its own */
    tc_program *f = tc_ctx_make(&ctx, &o) ? NULL : chain(ctx, 1.25);
    for (int i = 0; f && i < 4; i++) {
        if (run(f)) {
            return 2;
        }
    }
    if (!f || tc_queue_make(&q) || run_async(f, q, out, &event)) {
        return 3;
    }
    if (number == SIGSEGV) {
        *(volatile int *)(uintptr_t)16 = 1;
    }
    raise(number);
    return 4;
}

TEST(a_trace_has_the_kernels_of_a_device_when_a_signal_ends_the_process)
{
    NEED_NVRTC();
    static const int by[] = {SIGTERM, SIGSEGV, SIGABRT};
    for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++) {
        char path[96], number[16];
        int ended = -1;
        snprintf(path, sizeof(path), "%s/trace-%d.json", folder, by[i]);
        snprintf(number, sizeof(number), "%d", by[i]);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            struct rlimit no_core = {0, 0};
            setrlimit(RLIMIT_CORE, &no_core);
            setenv("TC_TEST_START", folder, 1);
            setenv("TC_TEST_TRACE", path, 1);
            setenv("TC_TEST_SIGNAL", number, 1);
            execl("/proc/self/exe", "test_driver", (char *)NULL);
            tct_exit(99);
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK_MSG(WIFSIGNALED(ended) && WTERMSIG(ended) == by[i], "status %d", ended);
        tci_str file = {0};
        REQUIRE(tci_os_read_file(path, &file, NULL));
        timeline t = {.text = file.text, .parsed = json_parse(tci_str_text(&file))};
        REQUIRE(t.parsed && t.parsed->kind == JSON_OBJECT);
        t.events = json_get(t.parsed, "traceEvents");
        CHECK_EQ_INT(count_events(&t, "device", "X"), 20); /* the first runs */
        CHECK_EQ_INT(count_events(&t, "graph", "X"), 3);   /* one of them was under way */
        CHECK_EQ_INT(count_events(&t, "share", "X"), 30);
        check_flows(&t);
        timeline_free(&t);
    }
}

TEST(options_record_forbids_graphs)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("unrecorded");
    REQUIRE(ctx != NULL);
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, N, N);
    tc_options o = {.record = -1};
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_cumsum(tc_cumsum(x, 0), 1)), &o, &f) ==
            TC_OK);
    int graphs = fake_graph_launches, launches = fake_launches;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(run(f), TC_OK);
    }
    CHECK_EQ_INT(fake_graph_launches, graphs);
    CHECK_EQ_INT(fake_launches, launches + 6);
    char text[20000] = "";
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_explain(f, file), TC_OK);
    fclose(file);
    CHECK_HAS(text, "\nis not run as one recorded graph: options.record forbids it\n");
    tc_program_free(f);
    tc_ctx_free(ctx);
}
int main(int argc, char **argv)
{
    const char *again = getenv("TC_TEST_START"), *trace = getenv("TC_TEST_TRACE");
    if (!fake_install()) {
        printf("fake_driver.h lacks a row of cuda/driver_api.h\n");
        return 1;
    }
    if (again && trace) {
        snprintf(folder, sizeof(folder), "%s", again);
        tct_exit(trace_until_signal(trace, atoi(getenv("TC_TEST_SIGNAL"))));
    }
    return run_tests(argc, argv);
}
