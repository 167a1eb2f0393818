/* The CUDA backend's use of the driver, on any machine: a driver that only counts is in its place
 * (fake_driver.h). What a kernel computes is the matter of test_cuda.c. Needs NVRTC. */
#ifndef __clang__
#pragma GCC optimize("O0") /* the whole library is in this file */
#endif
#define TC_CUDA
#define TCI_KEEP_OPTIMIZE
#define TC_IMPLEMENTATION
#include "tc.h"

#include "tc_test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_context.h"

static const char *explained(const tc_program *f)
{
    static char text[20000];
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_explain(f, file), TC_OK);
    fclose(file);
    return text;
}

TEST(a_chain_of_kernels_is_one_graph_launch)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("chain");
    REQUIRE(ctx != NULL);
    tc_program *f = chain(ctx, 1.0);
    tc_program_info info;
    REQUIRE(f && tc_program_get_info(f, &info) == TC_OK);
    CHECK_EQ_INT(info.n_steps, 10);
    CHECK_HAS(explained(f), "\nruns as one recorded graph (CUDA graph)\n");
    int nodes = fake_nodes, graphs = fake_graph_launches;
    int launches = fake_launches;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(run(f), TC_OK);
    }
    CHECK_EQ_INT(fake_nodes - nodes, 10);
    CHECK_EQ_INT(fake_graph_launches - graphs, 3);
    CHECK_EQ_INT(fake_launches - launches, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- loops ---- */

static tc_status goes_on(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(tc_sum(carry[0], TC_ALL, false), 1e6);
    return TC_OK;
}

static tc_status step(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_cumsum(carry[0], 1);
    return TC_OK;
}

/* From the second run on a loop is one graph, which holds two rounds and three decisions; where the
 * driver makes none, the host looks. */
TEST(a_loop_ends_on_the_device)
{
    NEED_NVRTC();
    static const char *const fails[] = {NULL, "cuGraphConditionalHandleCreate", "cuGraphAddNode",
                                        "cuGraphInstantiateWithFlags"};
    for (int i = 0; i < 4; i++) {
        tc_ctx *ctx = context("loop");
        REQUIRE(ctx != NULL);
        tc_tensor x = tc_input(ctx, "x", TC_F32, N, N), last;
        tc_program *f = NULL;
        REQUIRE(!tc_while(TC_TENSORS(x), 100, goes_on, step, NULL, &last));
        CHECK_MSG(!tc_compile(last, &f), "%s", tc_error(ctx));
        REQUIRE(f && f->code->n_repeats == 1);
        int body = f->code->repeats[0].last - f->code->repeats[0].first;
        int nodes = fake_nodes, graphs = fake_graph_launches, conditionals = fake_conditionals;
        CHECK_EQ_INT(run(f), TC_OK);
        CHECK(fake_nodes == nodes && fake_graph_launches == graphs);
        fake_fail_in = fails[i];
        fake_fail_after = 0;
        CHECK_MSG(!run(f), "%s: %s", fails[i] ? fails[i] : "", tc_program_error(f));
        fake_fail_in = NULL;
        CHECK_EQ_INT(run(f), TC_OK);
        CHECK_EQ_INT(fake_graph_launches - graphs, i ? 0 : 2);
        if (!i) {
            CHECK_EQ_INT(fake_nodes - nodes, 2 * body + 3);
            CHECK_EQ_INT(fake_conditionals - conditionals, 2);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* ---- the order of a graph's nodes ---- */

typedef struct span {
    char *begin, *end;
    bool writes;
} span;

static span operand(const tc_call *c, int step, int o)
{
    const tci_code *code = c->program->code;
    int32_t at = code->steps[step].operands[o];
    const tci_code_buffer *b = &code->buffers[at];
    int64_t bytes = b->kind == TCI_BUF_INPUT    ? code->inputs[b->index].bytes
                    : b->kind == TCI_BUF_OUTPUT ? code->outputs[b->index].bytes
                                                : b->bytes;
    char *begin = c->slots[c->program->steps[step].first_slot + o];
    span s = {begin, begin + bytes, code->kernels[code->steps[step].kernel].writes[o]};
    return s;
}

/* Whether they touch the same bytes, and one of them writes there. */
static bool meet(const tc_call *c, int a, int b)
{
    const tci_code *code = c->program->code;
    bool found = false;
    for (int i = 0; i < code->kernels[code->steps[a].kernel].n_operands; i++) {
        for (int j = 0; j < code->kernels[code->steps[b].kernel].n_operands; j++) {
            span x = operand(c, a, i), y = operand(c, b, j);
            found |= x.begin < y.end && y.begin < x.end && (x.writes || y.writes);
        }
    }
    return found;
}

/* What must come after what does, by some way over the nodes, and each edge of the graph is between
 * two that meet. Returns how many pairs may run side by side. */
static int check_order(tc_program *f)
{
    enum { MOST = 64 };
    bool reaches[MOST][MOST] = {{false}};
    tc_call *c = tci_call_take(f);
    int first = f->code->n_init, n = f->code->n_steps - first, free_pairs = 0;
    CHECK_EQ_INT(n, fake_n_graph);
    for (int i = 0; i < n && n <= MOST; i++) {
        for (int e = 0; e < fake_graph[i].n_after; e++) {
            int before = fake_graph[i].after[e];
            CHECK_MSG(before < i && meet(c, first + before, first + i), "%d after %d", i, before);
            reaches[i][before] = true;
            for (int k = 0; k < before; k++) {
                reaches[i][k] = reaches[i][k] || reaches[before][k];
            }
        }
        for (int k = 0; k < i; k++) {
            free_pairs += !reaches[i][k];
            CHECK_MSG(reaches[i][k] || !meet(c, first + k, first + i), "%d next to %d", i, k);
        }
    }
    tci_call_give(f, c);
    return free_pairs;
}

/* Four chains of kernels, no two of them joinable, and their reader. */
TEST(branches_are_side_by_side)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("branches");
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, N, N), y = x;
    for (int b = 0; b < 4; b++) {
        tc_tensor z = tc_exp(tc_mul(x, 3 + b));
        for (int i = 0; i < 3; i++) {
            z = tc_cumsum(z, i % 2);
        }
        y = b ? tc_add(y, tc_flip(z, 0)) : z;
    }
    REQUIRE(tc_compile(tc_cumsum(y, 0), &f) == TC_OK);
    CHECK_EQ_INT(run(f), TC_OK);
    CHECK(check_order(f) >= 12); /* four chains of three kernels or more: each next to the others */
    tc_program_free(f);
    f = chain(ctx, 1.0);
    CHECK_EQ_INT(run(f), TC_OK);
    CHECK_EQ_INT(check_order(f), 0);
    tc_program_free(f);
    /* a parameter is read by one branch and written by the last step of another */
    static float zero[N * N];
    tc_tensor p = tc_param(ctx, zero, TC_F32, N, N);
    tc_tensor read = tc_cumsum(tc_cumsum(tc_mul(p, x), 0), 1);
    tc_tensor fresh = tc_cumsum(tc_cumsum(tc_sin(x), 1), 0);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(read, tc_assign(p, tc_add(p, fresh))), NULL,
                          &f) == TC_OK);
    CHECK_EQ_INT(run(f), TC_OK);
    CHECK(check_order(f) >= 2);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- a second process ---- */

static bool nvrtc_is_mapped(void)
{
    char line[1024];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof(line), file)) {
        found = found || strstr(line, "libnvrtc");
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* In the second process: 0 when the program came from disk without NVRTC. path: of a saved one. */
static int start_again(const char *path)
{
    tc_program_info info;
    memset(&info, 0, sizeof(info));
    tc_ctx *ctx = context(getenv("TC_TEST_CACHE"));
    tc_program *f = NULL;
    if (path && ctx && tc_program_load(ctx, path, NULL, &f)) {
        fprintf(stderr, "%s\n", tc_error(ctx));
    }
    f = ctx && !path ? chain(ctx, 3.0) : f;
    bool good = f && tc_program_get_info(f, &info) == TC_OK && info.from_disk;
    good = good && !strcmp(info.backend, "cuda") && run(f) == TC_OK && !nvrtc_is_mapped();
    tc_program_free(f);
    tc_ctx_free(ctx);
    return !good;
}

/* How it ended: 0 when all was well. */
static int second_process(const char *path, const char *cache)
{
    int ended = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("TC_TEST_START", folder, 1);
        setenv("TC_NVRTC", "/nowhere/libnvrtc.so", 1);
        setenv("TC_TEST_CACHE", cache, 1);
        if (path) {
            setenv("TC_TEST_SAVED", path, 1);
        }
        execl("/proc/self/exe", "test_driver", (char *)NULL);
        tct_exit(99);
    }
    return waitpid(child, &ended, 0) == child ? ended : -1;
}

TEST(a_warm_start_does_not_open_nvrtc)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("warm");
    REQUIRE(ctx != NULL);
    tc_program *f = chain(ctx, 3.0);
    CHECK(f && run(f) == TC_OK && nvrtc_is_mapped());
    tc_program_free(f);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(second_process(NULL, "warm"), 0);
}

TEST(an_exported_cache_has_code_for_the_device)
{
    NEED_NVRTC();
    char exported[96];
    tc_shutdown(); /* what is in memory already is not written to another cache */
    tc_ctx *ctx = context("source");
    REQUIRE(ctx != NULL);
    tc_program *f = chain(ctx, 3.0);
    tc_program_free(f);
    snprintf(exported, sizeof(exported), "%s/exported", folder);
    CHECK_MSG(tc_cache_export(ctx, exported) == TC_OK, "%s", tc_error(ctx));
    tc_ctx_free(ctx);
    CHECK_EQ_INT(second_process(NULL, "exported"), 0);
    CHECK(second_process(NULL, "nothing") != 0); /* without that cache NVRTC is missing */
}

TEST(a_saved_program_runs_in_another_process_without_nvrtc)
{
    NEED_NVRTC();
    tc_ctx *ctx = context("saved");
    REQUIRE(ctx != NULL);
    tc_program *f = chain(ctx, 5.0);
    char path[96];
    snprintf(path, sizeof(path), "%s/chain.tcp", folder);
    CHECK_MSG(tc_program_save(f, path, &(tc_save_options){.packed = true}) == TC_OK, "%s",
              tc_error(f));
    tc_program_free(f);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(second_process(path, "warm"), 0);
}

/* Bytes of a cubin name the architecture that it is for. */
static bool file_has(const char *path, const char *text)
{
    tci_str file = {0};
    bool found = false;
    REQUIRE(tci_os_read_file(path, &file, NULL));
    for (size_t i = 0; i + strlen(text) <= file.n && !found; i++) {
        found = !memcmp(file.text + i, text, strlen(text));
    }
    tci_str_free(&file);
    return found;
}

TEST(programs_for_devices_that_are_not_here_are_compiled_and_saved)
{
    NEED_NVRTC();
    static const char *const machines[] = {"sm_80", "sm_90"};
    for (int i = 0; i < 2; i++) {
        char path[96];
        tc_options o = {.machine = machines[i], .no_disk_cache = true};
        tc_ctx *ctx = NULL;
        tc_program *g;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_program *f = chain(ctx, 6.0);
        REQUIRE(f != NULL);
        snprintf(path, sizeof(path), "%s/%s.tcp", folder, machines[i]);
        CHECK_MSG(tc_program_save(f, path, NULL) == TC_OK, "%s", tc_error(f));
        CHECK(file_has(path, machines[i]));
        CHECK(file_has(path, "\177ELF"));
        if (i == 0) { /* the device here is of the generation 9 */
            CHECK_EQ_INT(run(f), TC_ERR_UNSUPPORTED);
            CHECK_HAS(tc_error(f), "compiled for another machine");
            CHECK_EQ_INT(tc_program_load(ctx, path, NULL, &g), TC_ERR_UNSUPPORTED);
            CHECK_HAS(tc_ctx_error(ctx), "needs cuda sm_80");
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* ---- fork ---- */

typedef struct busy_work {
    tc_program *f;
    int stop;
} busy_work;

static void *keep_running(void *arg)
{
    busy_work *work = arg;
    while (!__atomic_load_n(&work->stop, __ATOMIC_RELAXED)) {
        (void)run(work->f);
    }
    return NULL;
}

/* What a child finds wrong: 0 nothing. */
static int in_child(tc_ctx *ctx, tc_program *f)
{
    void *memory = NULL;
    tc_program *fresh = NULL;
    alarm(20); /* a deadlock ends it */
    if (run(f) == TC_OK || !strstr(tc_error(f), "fork")) {
        return 1;
    }
    if (tc_cuda_alloc(8, &memory) != TC_ERR_BACKEND) {
        return 2;
    }
    tc_tensor y = tc_exp(tc_input(ctx, "y", TC_F32, 100 + (int)getpid() % 1000));
    if (tc_compile(y, &fresh) == TC_OK || !strstr(tc_error(y), "fork")) {
        return 3;
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return fake_calls_in_child == 0 ? 0 : 4;
}

/* Forked while another thread is in the middle of a run. */
TEST(a_forked_child_has_no_gpu_and_is_told)
{
    NEED_NVRTC();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    SKIP("the sanitizer's own allocator may be locked in the child");
#endif
    tc_ctx *ctx = context("fork");
    REQUIRE(ctx != NULL);
    busy_work work = {chain(ctx, 2.0), 0};
    pthread_t busy;
    REQUIRE(work.f && run(work.f) == TC_OK);
    REQUIRE(pthread_create(&busy, NULL, keep_running, &work) == 0);
    fflush(stdout);
    for (int i = 0; i < 50; i++) {
        int ended = -1;
        pid_t child = fork();
        if (child == 0) {
            tct_exit(in_child(ctx, work.f));
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK_EQ_INT(ended, 0);
    }
    __atomic_store_n(&work.stop, 1, __ATOMIC_RELAXED);
    pthread_join(busy, NULL);
    CHECK_EQ_INT(run(work.f), TC_OK); /* the parent goes on */
    tc_program_free(work.f);
    tc_ctx_free(ctx);
}

/* ---- the host's own use of CUDA ---- */

/* Every call of the driver finds the device's context, and the host then finds its own, whatever it
 * makes current between two runs. */
TEST(the_context_of_the_caller_stays_current)
{
    static int others[2];
    NEED_NVRTC();
    int misses = fake_context_misses;
    for (int i = 0; i < 3; i++) {
        void *mine = i < 2 ? &others[i] : NULL;
        char cache[8];
        snprintf(cache, sizeof(cache), "host%d", i); /* all is made under this context */
        fake_current = mine;
        tc_ctx *ctx = context(cache);
        REQUIRE(ctx != NULL);
        tc_program *f = chain(ctx, 4.0 + i);
        void *memory = NULL;
        CHECK(f && run(f) == TC_OK && fake_current == mine);
        fake_current = &others[1 - i % 2];
        CHECK(run(f) == TC_OK && fake_current == &others[1 - i % 2]);
        CHECK(tc_cuda_alloc(8, &memory) == TC_OK && fake_current == &others[1 - i % 2]);
        tc_cuda_free(memory);
        tc_program_free(f);
        tc_ctx_free(ctx);
        CHECK(fake_current == &others[1 - i % 2]);
    }
    CHECK_EQ_INT(fake_context_misses - misses, 0);
    fake_current = &fake_context; /* as with the CUDA runtime: nothing is switched then */
    tc_ctx *ctx = context("host0");
    tc_program *f = chain(ctx, 4.0);
    int sets = fake_context_sets;
    CHECK(f && run(f) == TC_OK);
    CHECK_EQ_INT(fake_context_sets - sets, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
    fake_current = NULL;
}

/* ---- a driver that fails ---- */

/* The driver's kernels compute nothing: new values are 0. */
TEST(an_index_outside_its_axis_leaves_parameters_and_outputs)
{
    NEED_NVRTC();
    static float out[2 * N];
    gatherer g;
    REQUIRE(make_gatherer(&g, "index"));
    out[0] = out[N] = 7;
    fake_fault = 1 + N;
    CHECK_EQ_INT(run_gatherer(&g, out), TC_ERR_INDEX);
    CHECK_EQ_INT(run_gatherer(&g, out), TC_ERR_INDEX);
    char text[200]; /* none of the indices is outside, so none is told */
    snprintf(text, sizeof(text),
             "is outside an axis of size %d, expected %d to %d: axis 0 of size "
             "%d in tc_gather made at tests/cuda/driver_context.h:",
             N, -N, N - 1, N);
    CHECK_HAS(tc_error(g.f), text);
    fake_fault = 0;
    CHECK(out[0] == 7 && out[N] == 7 && is_still(&g, 3));
    CHECK_EQ_INT(run_gatherer(&g, out), TC_OK);
    CHECK(out[0] == 0 && out[N] == 0 && is_still(&g, 0));
    free_gatherer(&g);
}

/* Each call of the driver that a run makes fails once. A failed run says so and leaves its
 * parameter as it was, unless that was on the way; the next one works. What a failed run left
 * pending concerns no other run (its call is freed). */
TEST(every_call_of_a_run_may_fail)
{
    NEED_NVRTC();
    static const char *const functions[] = {
        "cuCtxGetCurrent",     "cuCtxSetCurrent",         "cuGraphLaunch",
        "cuStreamSynchronize", "cuMemcpyAsync",           "cuMemAlloc_v2",
        "cuGraphCreate",       "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags"};
    static float out[2 * N];
    for (int i = 0; i < (int)(sizeof(functions) / sizeof(*functions)); i++) {
        int n_failed = 0, n_told = 0, n_begun = 0;
        for (bool failed = true; failed && n_failed < 50;) {
            gatherer g;
            fake_current = NULL;
            REQUIRE(make_gatherer(&g, "fails"));
            tc_call *call = NULL;
            int64_t index[N] = {0};
            REQUIRE(tc_call_make(g.f, &call) == TC_OK);
            fake_fail_in = functions[i];
            fake_fail_after = n_failed;
            tc_status status = tc_run_call(call, TC_BUFS(TC_BUF(index, N)),
                                           TC_BUFS(TC_BUF(out, N), TC_BUF(out + N, N)));
            failed = fake_fail_after < 0; /* it was called so often */
            fake_fail_in = NULL;
            CHECK_MSG(failed || status == TC_OK, "%s, call %d: status %d", functions[i], n_failed,
                      (int)status);
            n_told += status != TC_OK;
            bool told = status == TC_OK || strstr(tc_error(call), "CUDA_ERROR_FAKE");
            CHECK_MSG(told, "%s, call %d: %s", functions[i], n_failed, tc_error(call));
            tc_call_free(call);
            float was = status ? 3 : 0;
            bool begun = status && is_still(&g, 0);
            n_begun += begun;
            CHECK_MSG(begun || is_still(&g, was), "%s, call %d", functions[i], n_failed);
            CHECK_EQ_INT(run_gatherer(&g, out), TC_OK);
            free_gatherer(&g);
            n_failed += failed;
        }
        bool again = !strcmp(functions[i], "cuMemAlloc_v2"); /* memory is asked for twice */
        CHECK_MSG((n_told > 0 || again) && n_failed < 50, "%s: %d calls failed, %d runs",
                  functions[i], n_failed, n_told);
        CHECK_MSG(n_begun <= 3, "%s: %d runs changed the parameter", functions[i], n_begun);
    }
}

/* The outputs of a run come down one by one: when the second does not, the first is there, and the
 * parameter did not change. */
TEST(a_failed_download_is_told)
{
    NEED_NVRTC();
    static float out[2 * N];
    gatherer g;
    REQUIRE(make_gatherer(&g, "download"));
    CHECK_EQ_INT(run_gatherer(&g, out), TC_OK); /* index and parameter went up, two outputs down */
    out[0] = out[N] = 7;
    fake_fail_in = "cuMemcpyAsync";
    fake_fail_after = 2; /* the index goes up, an output down */
    CHECK_EQ_INT(run_gatherer(&g, out), TC_ERR_BACKEND);
    fake_fail_in = NULL;
    CHECK_HAS(tc_error(g.f), "cuMemcpyAsync: CUDA_ERROR_FAKE");
    CHECK(out[0] == 0 && out[N] == 7);
    CHECK_EQ_INT(run_gatherer(&g, out), TC_OK);
    CHECK(out[N] == 0);
    free_gatherer(&g);
}

/* ---- several devices ---- */

TEST(a_second_device_has_a_context_of_its_own)
{
    NEED_NVRTC();
    static float in[N * N], out[N * N];
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.device = 1;
    tc_ctx *ctx = context("devices");
    tc_program *on[2] = {NULL, NULL};
    tc_tensor x = tc_input(ctx, "x", TC_F32, N, N), y = tc_cumsum(tc_exp(x), 1);
    tc_tensor p = tc_borrow(ctx, in, TC_F32, N, N);
    y = tc_add(y, p);
    for (int i = 0; i < 2; i++) {
        o.device = i;
        CHECK_MSG(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &on[i]) == TC_OK, "%s",
                  tc_error(y));
        REQUIRE(on[i] != NULL);
    }
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(on[1], &info), TC_OK);
    CHECK_STR(info.backend, "cuda:1");
    int misses = fake_context_misses;
    for (int i = 0; i < 4; i++) { /* each finds its own context current, and leaves none */
        int first = fake_n_log;
        CHECK_EQ_INT(tc_run(on[i % 2], TC_BUFS(TC_BUF(in, N * N)), TC_BUFS(TC_BUF(out, N * N))),
                     TC_OK);
        for (int j = first; j < fake_n_log; j++) {
            CHECK_EQ_INT(FAKE_LOG(j).context, i % 2);
        }
        CHECK(fake_n_log > first && fake_current == NULL);
    }
    tc_queue *q = NULL;
    tc_event *e[2] = {NULL, NULL};
    REQUIRE(tc_queue_make(&q) == TC_OK);
    for (int i = 0; i < 2; i++) { /* a queue goes from one device to the other */
        CHECK_EQ_INT(tc_run_async(on[i], q, TC_BUFS(TC_BUF(in, N * N)), TC_BUFS(TC_BUF(out, N * N)),
                                  &e[i]),
                     TC_OK);
    }
    CHECK(tc_event_wait(e[0]) == TC_OK && tc_event_wait(e[1]) == TC_OK);
    tc_event_free(e[0]);
    tc_event_free(e[1]);
    tc_queue_free(q);
    CHECK_EQ_INT(fake_context_misses - misses, 0);
    void *memory = NULL;
    CHECK(tc_cuda_alloc_on(1, 64, &memory) == TC_OK && memory);
    tc_cuda_free(memory);
    CHECK_EQ_INT(tc_cuda_alloc_on(2, 64, &memory), TC_ERR_BACKEND);
    tc_program *none = NULL;
    o.device = 2; /* the driver knows of none */
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &none), TC_ERR_COMPILER);
    CHECK_HAS(tc_error(y), "cuDeviceGet");
    o.device = 99;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &none), TC_ERR_BACKEND);
    CHECK_HAS(tc_error(y), "the backend cuda has no device 99");
    tc_program_free(on[0]);
    tc_program_free(on[1]);
    tc_ctx_free(ctx);
}

/* The module says what maps its kernel wants; they are made for the operands' addresses. */
/* The record of the machine is what the driver says, and careful values for the rest. */
/* A page that the host may not touch, as memory of a GPU is for it. */
static float *hidden_page(void)
{
    fake_hidden_bytes = 4096;
    void *page = mmap(NULL, fake_hidden_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    fake_hidden = page;
    return page;
}

#define CHECK_HIDDEN(call, about, what)                                                            \
    do {                                                                                           \
        CHECK_EQ_INT(call, TC_ERR_BUFFER);                                                         \
        CHECK_HAS(tc_error(about), what);                                                          \
        CHECK_HAS(tc_error(about), "cuda device");                                                 \
    } while (0)

/* On the host such memory would be a segmentation fault. */
TEST(programs_on_the_host_refuse_memory_of_a_device)
{
    void *memory = NULL;
    REQUIRE(tc_cuda_alloc(8, &memory) == TC_OK); /* there is a device now */
    tc_cuda_free(memory);
    float *far = hidden_page(), near[4] = {1, 2, 3, 4}, out[4] = {0};
    const int64_t sizes[1] = {4}, strides[1] = {2};
    for (int k = 0; k < 2; k++) {
        tc_options o = {.backend = k ? "interp" : "cpu", .no_disk_cache = true, .threads = 1};
        tc_ctx *ctx = NULL;
        tc_program *f = NULL, *g = NULL;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
        tc_tensor captured = tc_borrow(ctx, far, TC_F32, 4);
        REQUIRE(tc_compile(tc_neg(x), &f) == TC_OK);
        REQUIRE(tc_compile(tc_add(x, captured), &g) == TC_OK);
        const tc_bufs in = TC_BUFS(TC_BUF(near, 4)), to = TC_BUFS(TC_BUF(out, 4));
        const tc_buf apart = TC_BUF_STRIDED(far, 1, sizes, strides);
        CHECK_HIDDEN(tc_run(f, TC_BUFS(TC_BUF(far, 4)), to), f, "input 0");
        CHECK_HIDDEN(tc_run(f, in, TC_BUFS(TC_BUF(far + 7, 4))), f, "output 0");
        CHECK_HIDDEN(tc_run(f, TC_BUFS(apart), to), f, "input 0");
        CHECK_HIDDEN(tc_run(f, in, TC_BUFS(apart)), f, "output 0");
        CHECK_HIDDEN(tc_run(g, in, to), g, "captured tensor 0");
        tc_queue *queue = NULL;
        tc_event *event = NULL;
        REQUIRE(tc_queue_make(&queue) == TC_OK);
        tc_status status = tc_run_async(f, queue, TC_BUFS(TC_BUF(far, 4)), to, &event);
        CHECK_EQ_INT(status ? status : tc_event_wait(event), TC_ERR_BUFFER);
        tc_event_free(event);
        tc_queue_free(queue);
        CHECK_HIDDEN(tc_read(captured, out, 4), captured, "the value is in memory");
        CHECK_HIDDEN(tc_read(tc_neg(captured), out, 4), ctx, "captured tensor 0");
        CHECK_HIDDEN(tc_read(tc_borrow(ctx, near, TC_F32, 4), far, 4), ctx, "tc_read");
        tc_tensor copied = tc_copy_in(ctx, far, TC_F32, 4);
        CHECK_HIDDEN(tc_status_of(copied), copied, "tc_copy_in");
        tc_tensor p = tc_param(ctx, near, TC_F32, 4);
        CHECK_HIDDEN(tc_param_write(p, far, 4), ctx, "tc_param_write");
        CHECK_EQ_INT(tc_run(f, in, to), TC_OK);
        CHECK(out[3] == -4);
        tc_program_free(f);
        tc_program_free(g);
        tc_ctx_free(ctx);
    }
    munmap(far, fake_hidden_bytes);
    fake_hidden = NULL;
    fake_hidden_bytes = 0;
}

TEST(the_device_is_asked)
{
    const tc_backend *calls = tci_cuda_backend();
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    REQUIRE(calls->target(NULL, 0, &target) == TC_OK && target.usable);
    CHECK_EQ_INT(target.machine.subgroup, 32);
    CHECK_EQ_INT(target.machine.shared_bytes, 48 << 10);
    CHECK_CLOSE(target.machine.ghz, 1.5, 1e-9);
    CHECK_CLOSE(target.machine.memory_gbs, 2048, 1e-9);
    tci_machine machine = {.vector_bytes = 16, .block_threads = 512, .facts = target.machine};
    machine = tci_machine_complete(machine);
    CHECK(machine.facts.processors > 0 && machine.facts.shared_most >= machine.facts.shared_bytes);
}

TEST(a_product_is_launched_with_its_maps)
{
    static char memory[3][4096] __attribute__((aligned(64)));
    static tci_cuda_skeleton said = {
        200000,
        32,
        12,
        2,
        {{1, 9, 2, 32, {64, 20}, {128}, {64, 128}, {1, 1, 1, 1, 1}, 0, {0}, {0}},
         {0, 9, 3, 0, {40, 64, 3}, {80, 5120}, {64, 32, 1}, {1, 2, 1, 1, 1}, 0, {0}, {0}}}};
    const tc_backend *calls = tci_cuda_backend();
    tc_backend_target target;
    void *module = NULL, *sequence = NULL, *buffers[3] = {memory[0], memory[1], memory[2]};
    REQUIRE(calls->target(NULL, 0, &target) == TC_OK && target.usable);
    REQUIRE(calls->module_load(NULL, "cubin", 5, "/nowhere", &module) == TC_OK);
    fake_skeleton = &said;
    tc_launch launch = {.buffers = buffers, .n_buffers = 3, .task_end = 7};
    launch.function = calls->module_find(NULL, module, "product");
    fake_skeleton = NULL;
    REQUIRE(launch.function);
    CHECK_EQ_INT(fake_shared_bytes, 200000);
    REQUIRE(calls->record(NULL, &launch, 1, &sequence) == TC_OK);
    CHECK_EQ_INT(fake_n_maps, 2);
    CHECK(fake_maps[0].address == memory[1] + 32 && fake_maps[1].address == memory[0]);
    CHECK(fake_maps[0].rank == 2 && fake_maps[1].rank == 3);
    CHECK(fake_maps[0].dim[1] == 20 && fake_maps[0].stride[0] == 128);
    CHECK(fake_maps[1].dim[2] == 3 && fake_maps[1].stride[1] == 5120 && fake_maps[1].box[1] == 63);
    CHECK(fake_last_node.grid_x == 7 && fake_last_node.block_x == 32);
    CHECK(fake_last_node.block_y == 12 && fake_last_node.shared_bytes == 200000);
    CHECK(fake_last_node.params && !fake_last_node.extra);
    calls->sequence_free(NULL, sequence);
    calls->module_free(NULL, module);
}

/* A network's weights waste no pages; when memory of 0.5 to 10.5 MB comes and goes, no
 * block overlaps another. */
TEST(weights_share_pages)
{
    enum { PIECES = 60, ROUNDS = 3000 };
    const tc_backend *calls = tci_cuda_backend();
    tc_backend_target target;
    char *piece[PIECES] = {0};
    int64_t bytes[PIECES], used = 0, pages = fake_pages;
    unsigned random = 5;
    REQUIRE(calls->target(NULL, 0, &target) == TC_OK && target.usable);
    for (int i = 0; i < PIECES; i++) { /* a network's: of 1.2 and 4.7 MB */
        bytes[i] = i % 6 < 4 ? 768 * 768 * 2 : 768 * 3072 * 2;
        used += bytes[i];
        piece[i] = (char *)calls->alloc(NULL, bytes[i]);
        REQUIRE(piece[i]);
    }
    CHECK_MSG((fake_pages - pages) << 21 < used + (14 << 20), "%lld MB for %lld",
              (long long)(fake_pages - pages) * 2, (long long)used >> 20);
    for (int k = 0; k < ROUNDS; k++) {
        random = random * 1664525u + 1013904223u;
        int i = (int)(random >> 8) % PIECES;
        calls->free(NULL, piece[i]);
        bytes[i] = (1 << 19) + (random >> 4) % (10 << 20);
        piece[i] = (char *)calls->alloc(NULL, bytes[i]);
        REQUIRE(piece[i] && (uintptr_t)piece[i] % 256 == 0);
        for (int j = 0; j < PIECES; j++) {
            bool is_apart = piece[i] + bytes[i] <= piece[j] || piece[j] + bytes[j] <= piece[i];
            CHECK_MSG(i == j || is_apart, "round %d: %d overlaps %d", k, i, j);
        }
    }
    for (int i = 0; i < PIECES; i++) {
        calls->free(NULL, piece[i]);
    }
    CHECK_EQ_INT(fake_pages, pages);
}

/* Where the driver has no memory for a slab the call says so, and nothing is kept. */
TEST(a_slab_that_is_not_there_is_told)
{
    const tc_backend *calls = tci_cuda_backend();
    tc_backend_target target;
    int64_t pages = fake_pages;
    REQUIRE(calls->target(NULL, 0, &target) == TC_OK && target.usable);
    fake_fail_in = "cuMemAlloc_v2";
    fake_fail_after = 0;
    CHECK(calls->alloc(NULL, 3 << 20) == NULL);
    fake_fail_in = NULL;
    CHECK_HAS(calls->last_error(NULL), "cuMemAlloc: CUDA_ERROR_FAKE");
    void *memory = calls->alloc(NULL, 3 << 20);
    CHECK(memory && fake_pages == pages + 2);
    int waits = fake_context_waits;
    calls->free(NULL, memory); /* as the driver does, when the device has done what reads it */
    CHECK(fake_pages == pages && fake_context_waits == waits + 1);
}

int main(int argc, char **argv)
{
    const char *again = getenv("TC_TEST_START");
    if (!fake_install()) {
        printf("fake_driver.h lacks a row of cuda/driver_api.h\n");
        return 1;
    }
    if (again) {
        snprintf(folder, sizeof(folder), "%s", again);
        return start_again(getenv("TC_TEST_SAVED"));
    }
    return run_tests(argc, argv);
}
