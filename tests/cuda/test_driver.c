/* The CUDA backend's use of the driver, on any machine: a driver that only counts is in its place
 * (fake_driver.h). What a kernel computes is the matter of test_cuda.c. Needs NVRTC. */
#define TC_CUDA
#define TCI_KEEP_OPTIMIZE
#define TC_IMPLEMENTATION
#include "tc.h"

#include "tc_test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_driver.h"

enum { N = 64 };

static char folder[] = "/tmp/tc-driver-XXXXXX"; /* of the caches */

static bool have_nvrtc(void)
{
    const char *path = tci_nvrtc_path();
    int64_t bytes, mtime;
    return path[0] && tci_os_stat(path, &bytes, &mtime);
}

static tc_ctx *context(const char *cache)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    char path[64];
    memset(&o, 0, sizeof(o));
    snprintf(path, sizeof(path), "%s/%s", folder, cache);
    o.backend = "cuda";
    o.fallback = TC_FALLBACK_REFUSE;
    o.cache_dir = path;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

#define NEED_NVRTC()                                                                               \
    if (!have_nvrtc()) {                                                                           \
        SKIP("NVRTC is not found");                                                                \
    }

/* Ten kernels, as no two of them can be joined; `first` makes programs differ. */
static tc_program *chain(tc_ctx *ctx, double first)
{
    tc_program *f = NULL;
    tc_tensor y = tc_pow(tc_input(ctx, "x", TC_F32, N, N), first);
    for (int i = 0; i < 10; i++) {
        y = tc_cumsum(y, i % 2);
    }
    CHECK_MSG(tc_compile(y, &f) == TC_OK, "%s", tc_error(ctx));
    return f;
}

static tc_status run(tc_program *f)
{
    static _Thread_local float in[N * N], out[N * N];
    return tc_run(f, TC_BUFS(TC_BUF(in, N * N)), TC_BUFS(TC_BUF(out, N * N)));
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

/* In the second process: 0 when the program came from disk without NVRTC. */
static int start_again(void)
{
    tc_program_info info;
    memset(&info, 0, sizeof(info));
    tc_ctx *ctx = context("warm");
    tc_program *f = ctx ? chain(ctx, 3.0) : NULL;
    bool good = f && tc_program_get_info(f, &info) == TC_OK && info.from_disk;
    good = good && !strcmp(info.backend, "cuda") && run(f) == TC_OK && !nvrtc_is_mapped();
    tc_program_free(f);
    tc_ctx_free(ctx);
    return !good;
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
    fflush(stdout);
    pid_t child = fork();
    int ended = -1;
    if (child == 0) {
        setenv("TC_TEST_START", folder, 1);
        setenv("TC_NVRTC", "/nowhere/libnvrtc.so", 1);
        execl("/proc/self/exe", "test_driver", (char *)NULL);
        _exit(99);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
}

/* ---- fork ---- */

typedef struct busy_work { tc_program *f; int stop; } busy_work;

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
            _exit(in_child(ctx, work.f));
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

/* x[index] + p of a parameter p that is set to twice that, where it reads itself by the index. */
typedef struct gatherer {
    tc_ctx *ctx;
    tc_tensor p;
    tc_program *f;
} gatherer;

static bool make_gatherer(gatherer *g, const char *cache)
{
    static float three[N];
    for (int i = 0; i < N; i++) {
        three[i] = 3;
    }
    g->f = NULL;
    g->ctx = context(cache);
    if (!g->ctx) {
        return false;
    }
    g->p = tc_param(g->ctx, three, TC_F32, N);
    tc_tensor index = tc_input(g->ctx, "index", TC_I64, N);
    tc_tensor row = tc_gather(g->p, 0, index);
    tc_status status = tc_compile_fn(TC_TENSORS(index), TC_TENSORS(row, tc_neg(row),
                                                                   tc_assign(g->p, tc_mul(row, 2))),
                                     NULL, &g->f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(g->ctx));
    return g->f != NULL;
}

static tc_status run_gatherer(const gatherer *g, float *out)
{
    static int64_t index[N];
    return tc_run(g->f, TC_BUFS(TC_BUF(index, N)), TC_BUFS(TC_BUF(out, N), TC_BUF(out + N, N)));
}

static bool is_still(const gatherer *g, float v)
{
    float now[N];
    bool same = tc_read(g->p, now, N) == TC_OK;
    for (int i = 0; i < N && same; i++) {
        same = now[i] == v;
    }
    return same;
}

static void free_gatherer(const gatherer *g)
{
    tc_program_free(g->f);
    tc_ctx_free(g->ctx);
}

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
    snprintf(text, sizeof(text), "is outside an axis of size %d, expected %d to %d: axis 0 of size "
             "%d in tc_gather made at %s:", N, -N, N - 1, N, __FILE__);
    CHECK_HAS(tc_error(g.f), text);
    fake_fault = 0;
    CHECK(out[0] == 7 && out[N] == 7 && is_still(&g, 3));
    CHECK_EQ_INT(run_gatherer(&g, out), TC_OK);
    CHECK(out[0] == 0 && out[N] == 0 && is_still(&g, 0));
    free_gatherer(&g);
}

/* Each call of the driver that a run makes fails once. A failed run says so and leaves its
 * parameter as it was, unless that was on the way; the next one works. What a failed run left
 * pending concerns nobody else (its call is freed). */
TEST(every_call_of_a_run_may_fail)
{
    NEED_NVRTC();
    static const char *const functions[] = {
        "cuCtxGetCurrent", "cuCtxSetCurrent", "cuGraphLaunch", "cuStreamSynchronize",
        "cuMemcpyAsync", "cuMemAlloc_v2", "cuMemHostAlloc", "cuGraphCreate",
        "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags"};
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
            tc_status status =
                tc_run_call(call, TC_BUFS(TC_BUF(index, N)),
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
            CHECK_EQ_INT(tci_cuda.n_pending, 0);
            free_gatherer(&g);
            n_failed += failed;
        }
        CHECK_MSG(n_told > 0 && n_failed < 50, "%s: %d calls failed, %d runs", functions[i],
                  n_failed, n_told);
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

/* The module says what maps its kernel wants; they are made for the operands' addresses. */
/* The record of the machine is what the driver says, and careful values for the rest. */
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
        200000, 32, 12, {{1, 9, 2, 32, {64, 20}, {128}, {64, 128}, {1, 1, 1, 1, 1}},
                         {0, 9, 3, 0, {40, 64, 3}, {80, 5120}, {64, 32, 1}, {1, 2, 1, 1, 1}}}};
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

int main(int argc, char **argv)
{
    const char *again = getenv("TC_TEST_START");
    char command[64];
    if (!fake_install()) {
        printf("fake_driver.h lacks a row of cuda/load.h\n");
        return 1;
    }
    if (again) {
        snprintf(folder, sizeof(folder), "%s", again);
        return start_again();
    }
    if (!mkdtemp(folder)) {
        return 1;
    }
    int code = tct_main(argc, argv);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) ? 1 : code;
}
