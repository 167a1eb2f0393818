/* tests/engines/test_engines.c - onnxruntime, OpenVINO and XLA as backends by name: cases and
 * networks that other libraries computed, through each engine that is installed. Libraries are
 * looked for in TC_ENGINES, else in build/venv (.ci/run makes it); an engine that is not there is a
 * skip. TC_TEST_SOAK replays all cases. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "../examples/models/sentences.h"
#include "io.h"
#include "model_case.h"
#include "networks.h"
#include "oracle_run.h"
#include "tc_engines.h"
#include "tc_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- engines ---- */

/* Before anything asks for an engine. */
static void look_in_venv(void)
{
    static bool done;
    char path[4096] = "", found[300] = "";
    DIR *d = done ? NULL : opendir("build/venv/lib");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strncmp(e->d_name, "python3", 7)) {
            snprintf(found, sizeof(found), "%s", e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    if (*found && !getenv("TC_ENGINES") && getcwd(path, sizeof(path) - 400)) {
        size_t n = strlen(path);
        snprintf(path + n, sizeof(path) - n, "/build/venv/lib/%s/site-packages", found);
        setenv("TC_ENGINES", path, 1);
    }
    done = true;
}

static char missing[TC_GRAPH_TEXT]; /* why the last context is NULL */

/* A context of the backend, which refuses rather than replaces; NULL: the engine is not there, or
 * has no such device or provider. */
static tc_ctx *context(const char *backend)
{
    const tc_graph_backend *rows[] = {tci_onnxrt_backend(), tci_openvino_backend(),
                                      tci_openxla_backend(), tci_tvm_backend()};
    tc_ctx *ctx = NULL;
    look_in_venv();
    size_t n = strcspn(backend, ":");
    const char *option = backend[n] ? backend + n + 1 : "";
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strlen(rows[i]->name) == n && !memcmp(rows[i]->name, backend, n) &&
            rows[i]->find(rows[i]->user, option, missing) &&
            (!*option || rows[i]->version(rows[i]->user, option, missing) == TC_OK)) {
            tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE, .threads = 2};
            REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        }
    }
    return ctx;
}

#define NEED(backend)                                                                              \
    tc_ctx *ctx = context(backend);                                                                \
    if (!ctx) {                                                                                    \
        SKIP("%.40s: %.200s", backend, missing);                                                   \
    }

/* ---- cases of the oracle ---- */

/* Cases in which an engine's rules are not those of PyTorch and tc. */
static const struct {
    const char *engine, *op;
    int id;
    const char *why;
} unlike[] = {
    {"openvino", "exp", 27, "another result for NaN"},
    {"openvino", "nn.functional.hardsigmoid", 653, "another result for NaN"},
    {"openvino", "minimum", 1139, "another result for NaN"},
    {"openvino", "gt", 1495, "another result for NaN"},
    {"openvino", "gt", 1512, "another result for NaN"},
    {"openvino", "gt", 1514, "another result for NaN"},
    {"openvino", "ge", 1524, "another result for NaN"},
    {"openvino", "ge", 1535, "another result for NaN"},
    {"openvino", "ge", 1543, "another result for NaN"},
    {"openvino", "max", 2217, "another result for NaN"},
    {"openvino", "min", 2259, "another result for NaN"},
    {"openvino", "pow", 1064, "integer powers pass through f32"},
    {"openvino", "__rpow__", 2065, "integer powers pass through f32"},
    {"tvm", "minimum", 1139, "another result for NaN"},
    {"tvm", "nn.functional.hardsigmoid", 653, "another result for NaN"},
    {"tvm", "nn.functional.softshrink", 690, "another result for NaN"},
};

static const char *why_unlike(const orc_run *r, const json *spec)
{
    const json *id = json_get(spec, "id");
    for (size_t k = 0; k < sizeof(unlike) / sizeof(*unlike); k++) {
        if (!strcmp(unlike[k].engine, r->backend) &&
            !strcmp(unlike[k].op, json_string(spec, "op")) && id && unlike[k].id == id->integer) {
            return unlike[k].why;
        }
    }
    return NULL;
}

/* Replays each so many of the cases, in soak all or, of an engine that compiles slowly, the first
 * of each op; `least` of them must pass, none may fail. */
static void replay(const char *backend, int every, int least, bool slow)
{
    NEED(backend);
    size_t bytes;
    char *text = json_read_file("tests/data/opinfo.json", &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    st_file arrays;
    REQUIRE(manifest != NULL);
    REQUIRE(st_open(&arrays, "tests/data/opinfo.safetensors"));
    bool soak = getenv("TC_TEST_SOAK") != NULL;
    static orc_run r;
    r = (orc_run){.manifest = manifest,
                  .arrays = &arrays,
                  .backend = backend,
                  .quiet = true,
                  .may_refuse = true,
                  .unlike = why_unlike,
                  .first_of_op = soak && slow,
                  .every = soak ? 0 : every};
    CHECK(orc_run_list(&r, json_get(manifest, "cases"), false));
    orc_report(&r);
    printf("%s: %d passed, %d failed, %d skipped\n", backend, r.passed, r.failed, r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= least, "%d passed, expected at least %d", r.passed, least);
    st_close(&arrays);
    json_free(manifest);
    free(text);
    tc_ctx_free(ctx);
}

static tc_program *compile_rows(tc_ctx *ctx, const float *w, const float *p)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 12);
    tc_tensor y = tc_softmax(
        tc_add(tc_matmul(x, tc_copy_in(ctx, w, TC_F32, 12, 5)), tc_param(ctx, p, TC_F32, 5)), 1);
    tc_program *f = NULL;
    CHECK_MSG(tc_compile(y, &f) == TC_OK, "%s", tc_error(y));
    return f;
}

/* Output of a compile, a run and a refusal by each engine, from its first load on. It is the first
 * test, since a child of a process in which an engine has threads would wait for them forever. */
TEST(engines_print_nothing)
{
    static const char *const engines[] = {"onnxrt", "openvino", "openxla"};
    int there = 0;
    look_in_venv();
    io_spill(io_path("printed"), "", 0);
    for (int i = 0; i < 3; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int to = open(io_path("printed"), O_WRONLY | O_CREAT | O_APPEND, 0600);
            dup2(to, 1);
            dup2(to, 2);
            if (setjmp(tct_end)) { /* a failed REQUIRE ends the child, not its copy of this test */
                _exit(1);
            }
            tc_ctx *ctx = context(engines[i]);
            float p[5] = {0}, w[60] = {0}, x[36] = {0}, y[15];
            tc_program *f = ctx ? compile_rows(ctx, w, p) : NULL;
            if (f) {
                tc_run(f, TC_BUFS(TC_BUF(x, 36)), TC_BUFS(TC_BUF(y, 15)));
                tc_run(f, TC_BUFS(TC_BUF(x, 35)), TC_BUFS(TC_BUF(y, 15)));
            }
            _exit(!ctx ? 77 : !f);
        }
        int status = -1;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        there += status == 0;
        CHECK_MSG(status == 0 || WEXITSTATUS(status) == 77, "%s ends with %d", engines[i], status);
        io_bytes text = io_slurp(io_path("printed"));
        CHECK_MSG(text.n == 0, "%s prints: %.*s", engines[i], (int)(text.n < 300 ? text.n : 300),
                  text.at);
        free(text.at);
    }
    io_clean();
    if (!there) {
        SKIP("no engine is there");
    }
}

TEST(onnxruntime_gives_what_pytorch_gives)
{
    replay("onnxrt", 12, 120, false);
}

TEST(openvino_gives_what_pytorch_gives)
{
    replay("openvino", 12, 100, false);
}

TEST(xla_gives_what_pytorch_gives)
{
    replay("openxla", 12, 120, false);
}

TEST(tvm_gives_what_pytorch_gives)
{
    replay("tvm", 44, 28, true); /* its tool takes seconds for each */
}

TEST(onnxruntime_on_a_gpu_gives_what_pytorch_gives)
{
    replay("onnxrt:cuda", 12, 60, false);
}

TEST(xla_on_a_gpu_gives_what_pytorch_gives)
{
    replay("openxla:cuda", 12, 60, false);
}

/* ---- networks ---- */

static void run_network(const char *backend, const char *name, const char *manifest_path,
                        const char *path)
{
    size_t bytes;
    char *text = json_read_file(manifest_path, &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest != NULL);
    mdl_run r = {.name = name, .backend = backend, .out = stdout};
    r.meta = json_get(json_get(manifest, "tiny"), name);
    mdl_replay(&r, path);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed > 0, "%s: nothing was compared", name);
    json_free(manifest);
    free(text);
}

static void run_networks(const char *backend)
{
    NEED(backend);
    run_network(backend, "bert", "tests/data/models/models.json",
                "tests/data/models/bert.safetensors");
    if (!access("../shared/oracles/resnet18.safetensors", R_OK)) {
        run_network(backend, "resnet18", "../shared/oracles/models.json",
                    "../shared/oracles/resnet18.safetensors");
    }
    tc_ctx_free(ctx);
}

TEST(networks_run_by_onnxruntime)
{
    run_networks("onnxrt");
}

TEST(networks_run_by_openvino)
{
    run_networks("openvino");
}

TEST(networks_run_by_xla)
{
    run_networks("openxla");
}

TEST(networks_run_by_tvm)
{
    run_networks("tvm");
}

TEST(networks_run_by_onnxruntime_on_a_gpu)
{
    run_networks("onnxrt:cuda");
}

TEST(networks_run_by_xla_on_a_gpu)
{
    run_networks("openxla:cuda");
}

/* Networks that an engine refuses, or their training steps alone, and its reason. */
static const struct {
    const char *engine, *network, *why;
    bool trained;
} refused_networks[] = {
    {"openvino", "llama", "tc_arange of f64", false},
    {"tvm", "vit_tiny_patch16_224", "BitCast", true}, /* of the gradient of gelu, by erfc */
    {"tvm", "vit_base_patch16_224", "BitCast", true},
    {"tvm", "bert_base", "BitCast", true},
    {"tvm", "bert_small", "BitCast", true},
    {"tvm", "bert_minilm_l6", "BitCast", true},
};

static bool is_refused(const char *backend, const net_case *c, bool train)
{
    char text[300];
    int i = 0, n = (int)(sizeof(refused_networks) / sizeof(*refused_networks));
    while (i < n && (strcmp(refused_networks[i].engine, backend) ||
                     strcmp(refused_networks[i].network, c->name) ||
                     (refused_networks[i].trained && !train))) {
        i++;
    }
    if (i < n) {
        net *same = net_make(c->name, train, 3, false);
        CHECK(net_run(same, backend, text) == NULL);
        CHECK_HAS(text, refused_networks[i].why);
        net_free(same);
    }
    return i < n;
}

/* The 16 networks and their training steps by the backend, against the interpreter; outside of soak
 * the one of that name. */
static void compare_networks(const char *backend, const char *short_name)
{
    NEED(backend);
    for (int i = 0; i < NET_CASES; i++) {
        for (int train = 0; train < 2; train++) {
            if ((tct_soak || (!train && !strcmp(net_cases[i].name, short_name))) &&
                !is_refused(backend, &net_cases[i], train)) {
                net_compare(&net_cases[i], train, backend, net_run);
            }
        }
    }
    tc_ctx_free(ctx);
}

TEST(onnxruntime_runs_networks_as_interpreted)
{
    compare_networks("onnxrt", "mobilenet_v2");
}

TEST(openvino_runs_networks_as_interpreted)
{
    compare_networks("openvino", "mobilenet_v2");
}

TEST(xla_runs_networks_as_interpreted)
{
    compare_networks("openxla", "mobilenet_v2");
}

TEST(tvm_runs_networks_as_interpreted)
{
    if (!tct_soak) {
        SKIP("only in soak: its tool takes half a minute for each");
    }
    compare_networks("tvm", "");
}

/* ---- split graphs ---- */

static void round_run(void *user, const tc_custom_array *inputs, int n, tc_custom_array *result)
{
    (void)user, (void)n;
    for (int64_t i = 0; i < result->n; i++) {
        ((float *)result->data)[i] = rintf(8 * ((const float *)inputs[0].data)[i]) / 8;
    }
}

static void explain_has(tc_program *f, const char *part)
{
    char text[4000] = "";
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    REQUIRE(out != NULL);
    CHECK(tc_explain(f, out) == TC_OK);
    fclose(out);
    CHECK_HAS(text, part);
}

/* Two layers with a function of the user's between them, which no engine has. */
static tc_program *compile_layers(tc_ctx *ctx, const char *backend)
{
    static const tc_custom_op eighths = {.name = "eighths", .run = round_run};
    float w[2][64];
    tc_program *f = NULL;
    for (int i = 0; i < 128; i++) {
        w[i / 64][i % 64] = (float)cos(i);
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, 5, 8);
    tc_tensor h = tc_relu(tc_matmul(x, tc_copy_in(ctx, w[0], TC_F32, 8, 8)));
    tc_tensor skip = tc_mul(h, 0.5), r = tc_custom(&eighths, TC_TENSORS(h));
    tc_tensor y = tc_add(tc_matmul(r, tc_copy_in(ctx, w[1], TC_F32, 8, 8)), skip);
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_ALLOW};
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, tc_argmax(y, 1, false)), &o, &f) == TC_OK,
              "%s", tc_error(ctx));
    return f;
}

static void run_split(const char *backend)
{
    NEED(backend);
    float x[40], y[40], want[40];
    int64_t at[5], want_at[5];
    tc_ctx_free(ctx);
    REQUIRE(tc_ctx_make(&ctx, &(tc_options){.threads = 2}) == TC_OK);
    tc_program *f = compile_layers(ctx, backend), *g = compile_layers(ctx, "interp");
    REQUIRE(f && g);
    for (int i = 0; i < 40; i++) {
        x[i] = (float)(i % 7) / 4;
    }
    CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, 40)), TC_BUFS(TC_BUF(y, 40), TC_BUF(at, 5))) == TC_OK,
              "%s", tc_program_error(f));
    CHECK(tc_run(g, TC_BUFS(TC_BUF(x, 40)), TC_BUFS(TC_BUF(want, 40), TC_BUF(want_at, 5))) ==
          TC_OK);
    for (int i = 0; i < 40; i++) {
        CHECK_CLOSE(y[i], want[i], 1e-4);
        CHECK_EQ_INT(at[i / 8], want_at[i / 8]);
    }
    explain_has(f, "part 1 of 2: ");
    explain_has(f, "part 2 of 2: ");
    explain_has(f, "the rest, 1 node, by tc");
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
}

TEST(a_graph_that_tvm_refuses_is_split)
{
    run_split("tvm");
}

TEST(a_graph_that_onnxruntime_refuses_is_split)
{
    run_split("onnxrt");
}

TEST(a_graph_that_openvino_refuses_is_split)
{
    run_split("openvino");
}

TEST(a_graph_that_xla_refuses_is_split)
{
    run_split("openxla");
}

/* Loss and gradients of two layers with a rounding between them, whose derivative is 1: both passes
 * meet the user's function, and values of the forward part are inputs of the backward one. */
static void run_split_step(const char *backend)
{
    static const tc_custom_op eighths = {.name = "eighths", .run = round_run};
    static float x[40], w[128], y[2][1 + 128];
    NEED(backend);
    tc_ctx_free(ctx);
    REQUIRE(tc_ctx_make(&ctx, &(tc_options){.threads = 2}) == TC_OK);
    for (int i = 0; i < 128; i++) {
        w[i] = (float)cos(i) / 4;
        x[i % 40] = (float)(i % 7) / 4;
    }
    tc_tensor in = tc_input(ctx, "x", TC_F32, 5, 8), p[2], g[2];
    for (int i = 0; i < 2; i++) {
        p[i] = tc_param(ctx, w + 64 * i, TC_F32, 8, 8);
    }
    tc_tensor h = tc_tanh(tc_matmul(in, p[0]));
    tc_tensor r = tc_add(h, tc_stop_gradient(tc_sub(tc_custom(&eighths, TC_TENSORS(h)), h)));
    tc_tensor loss = tc_mean(tc_square(tc_matmul(r, p[1])), TC_ALL, false);
    REQUIRE(tc_grad(loss, p, 2, g) == TC_OK);
    for (int i = 0; i < 2; i++) {
        tc_options o = {.backend = i ? "interp" : backend, .fallback = TC_FALLBACK_ALLOW};
        tc_program *f = NULL;
        CHECK_MSG(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(loss, g[0], g[1]), &o, &f) == TC_OK,
                  "%s", tc_error(ctx));
        REQUIRE(f != NULL);
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, 40)),
                         TC_BUFS(TC_BUF(y[i], 1), TC_BUF(y[i] + 1, 64), TC_BUF(y[i] + 65, 64))) ==
                      TC_OK,
                  "%s", tc_program_error(f));
        if (!i) {
            explain_has(f, "part 2 of 2: ");
        }
        tc_program_free(f);
    }
    for (int i = 0; i < 129; i++) {
        CHECK_CLOSE(y[0][i], y[1][i], 1e-5);
    }
    tc_ctx_free(ctx);
}

TEST(gradients_are_split_as_any_nodes_by_onnxruntime)
{
    run_split_step("onnxrt");
}

TEST(gradients_are_split_as_any_nodes_by_openvino)
{
    run_split_step("openvino");
}

TEST(gradients_are_split_as_any_nodes_by_xla)
{
    run_split_step("openxla");
}

/* ---- runs ---- */

/* softmax(x w + p) of 3 rows by the engine against the interpreter, twice in each of 4 threads. */
typedef struct runner {
    tc_program *f;
    const float *x, *want;
    int wrong;
} runner;

static void *run_twice(void *arg)
{
    runner *r = arg;
    for (int k = 0; k < 2; k++) {
        float y[15];
        r->wrong += tc_run(r->f, TC_BUFS(TC_BUF((float *)(uintptr_t)r->x, 36)),
                           TC_BUFS(TC_BUF(y, 15))) != TC_OK;
        for (int i = 0; i < 15; i++) {
            r->wrong += !(fabs(y[i] - r->want[i]) < 1e-5);
        }
    }
    return NULL;
}

static void run_rows(const char *backend)
{
    NEED(backend);
    float x[36], w[60], p[5] = {0, 1, 2, 3, 4}, want[15];
    tc_ctx *plain;
    REQUIRE(tc_ctx_make(&plain, &(tc_options){.backend = "interp"}) == TC_OK);
    for (int i = 0; i < 60; i++) {
        w[i] = (float)sin(i);
        x[i % 36] = (float)cos(3 * i);
    }
    tc_program *f = compile_rows(ctx, w, p), *g = compile_rows(plain, w, p);
    REQUIRE(f && g);
    CHECK(tc_run(g, TC_BUFS(TC_BUF(x, 36)), TC_BUFS(TC_BUF(want, 15))) == TC_OK);
    pthread_t threads[4];
    runner runners[4];
    for (int i = 0; i < 4; i++) {
        runners[i] = (runner){f, x, want, 0};
        REQUIRE(pthread_create(&threads[i], NULL, run_twice, &runners[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(runners[i].wrong, 0);
    }
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(plain);
    tc_ctx_free(ctx);
}

TEST(threads_run_one_program_of_onnxruntime)
{
    run_rows("onnxrt");
}

TEST(threads_run_one_program_of_openvino)
{
    run_rows("openvino");
}

TEST(threads_run_one_program_of_xla)
{
    run_rows("openxla");
}

TEST(threads_run_one_program_of_tvm)
{
    run_rows("tvm");
}

static int threads_of_process(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    while (d && readdir(d)) {
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n - 2;
}

/* A session of onnxruntime has the caller's thread and options.threads - 1 more. */
TEST(threads_of_onnxruntime_follow_the_option)
{
    NEED("onnxrt");
    float p[5] = {0}, w[60] = {0};
    tc_ctx_free(ctx);
    if (threads_of_process() <= 0) {
        SKIP("no /proc");
    }
    for (int i = 0; i < 3; i++) { /* the first session starts one for all */
        int threads = i < 2 ? 1 : 3, before = threads_of_process();
        tc_options o = {.backend = "onnxrt", .fallback = TC_FALLBACK_REFUSE, .threads = threads};
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_program *f = compile_rows(ctx, w, p);
        CHECK(i == 0 || threads_of_process() - before == threads - 1);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* Nanoseconds that each thread of the process ran; how many threads there are. */
static int time_threads(int64_t *ids, int64_t *ns, int most)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) && n < most;) {
        char path[300], text[100] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f && fgets(text, sizeof(text), f)) {
            ids[n] = atoll(e->d_name);
            ns[n++] = atoll(text);
        }
        if (f) {
            fclose(f);
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

/* Threads that have a tenth or more of the processor time of one run of f: an engine may take
 * another thread for each run. -1: the system does not tell the times of threads. */
static int threads_at_work(tc_program *f, tc_buf in, tc_buf out)
{
    enum { MOST = 256 };
    static int64_t ids[2][MOST], ns[2][MOST];
    int64_t sum = 0, own[MOST];
    int n[2], busy = 0;
    n[0] = time_threads(ids[0], ns[0], MOST);
    CHECK(tc_run(f, TC_BUFS(in), TC_BUFS(out)) == TC_OK);
    n[1] = time_threads(ids[1], ns[1], MOST);
    for (int i = 0; i < n[1]; i++) {
        own[i] = ns[1][i];
        for (int k = 0; k < n[0]; k++) {
            own[i] -= ids[0][k] == ids[1][i] ? ns[0][k] : 0;
        }
        sum += own[i];
    }
    for (int i = 0; i < n[1]; i++) {
        busy += own[i] > sum / 10;
    }
    return sum > 0 ? busy : -1;
}

static void one_thread_works(const char *backend)
{
    NEED(backend);
    enum { SIDE = 768 };
    static float x[SIDE * SIDE], y[SIDE * SIDE];
    tc_ctx_free(ctx);
    if (threads_of_process() <= 0) {
        SKIP("no /proc");
    }
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor in = tc_input(ctx, "x", TC_F32, SIDE, SIDE), h = tc_tanh(tc_matmul(in, in));
    tc_program *f = NULL;
    CHECK_MSG(tc_compile(tc_exp(tc_matmul(h, in)), &f) == TC_OK, "%s", tc_error(ctx));
    for (int i = 0; i < 4 && f; i++) { /* the first run starts threads */
        int n = threads_at_work(f, TC_BUF(x, SIDE * SIDE), TC_BUF(y, SIDE * SIDE));
        if (n < 0) {
            tc_program_free(f);
            tc_ctx_free(ctx);
            SKIP("no processor times of threads in /proc");
        }
        CHECK_MSG(i == 0 || n == 1, "%s: %d threads at work", backend, n);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(onnxruntime_runs_on_one_thread_if_asked)
{
    one_thread_works("onnxrt");
}

TEST(openvino_runs_on_one_thread_if_asked)
{
    one_thread_works("openvino");
}

TEST(xla_runs_on_one_thread_if_asked)
{
    one_thread_works("openxla");
}

TEST(tvm_runs_on_one_thread_if_asked)
{
    one_thread_works("tvm");
}

/* ---- sizes 0 ---- */

/* x [rows, 3] reduced over its rows: of none the sum is 0, the product 1, any false, all true. */
static void reduce_no_rows(const char *backend)
{
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        NEED(backend);
        tc_ctx_free(ctx);
        REQUIRE(tc_ctx_make(&ctx, &(tc_options){.backend = backend, .threads = 1}) == TC_OK);
        int64_t rows = symbolic ? TC_DIM("rows", 0, 8) : 0;
        tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 3), set = tc_gt(x, 0);
        tc_tensors outputs = TC_TENSORS(tc_sum(x, TC_AXES(0), false), tc_prod(x, TC_AXES(0), false),
                                        tc_any(set, TC_AXES(0), false),
                                        tc_all(set, TC_AXES(0), false),
                                        tc_matmul(tc_transpose(x, 0, 1), x),
                                        tc_sum(tc_pad(x, 0, 1, 1, 4), TC_AXES(0), false),
                                        tc_exp(x));
        tc_program *f = NULL;
        CHECK_MSG(tc_compile_fn(TC_TENSORS(x), outputs, NULL, &f) == TC_OK, "%s", tc_error(ctx));
        for (int n = symbolic ? 2 : 0; f && n >= 0; n--) {
            float in[] = {1, 2, 3, 4, 5, 6}, sum[3], product[3], square[9], padded[3], e[6];
            bool some[3], each[3];
            const tc_bufs out = TC_BUFS(TC_BUF(sum, 3), TC_BUF(product, 3), TC_BUF(some, 3),
                                        TC_BUF(each, 3), TC_BUF(square, 9), TC_BUF(padded, 3),
                                        TC_BUF(e, 3 * n));
            CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(in, 3 * n)), out) == TC_OK, "%s: %s", backend,
                      tc_program_error(f));
            for (int i = 0; i < 3; i++) {
                double a = n > 0 ? in[i] : 0, b = n > 1 ? in[i + 3] : 0;
                CHECK_CLOSE(sum[i], a + b, 1e-6);
                CHECK_CLOSE(product[i], (n > 0 ? a : 1) * (n > 1 ? b : 1), 1e-6);
                CHECK_CLOSE(square[4 * i], a * a + b * b, 1e-6);
                CHECK_CLOSE(padded[i], 8 + a + b, 1e-6);
                CHECK_EQ_INT(some[i], n > 0);
                CHECK_EQ_INT(each[i], 1);
            }
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST(onnxruntime_reduces_no_rows)
{
    reduce_no_rows("onnxrt");
}

TEST(openvino_reduces_no_rows)
{
    reduce_no_rows("openvino");
}

TEST(xla_reduces_no_rows)
{
    reduce_no_rows("openxla");
}

TEST(tvm_reduces_no_rows)
{
    reduce_no_rows("tvm");
}

/* ---- wrong buffers ---- */

/* Buffers that do not fit are refused before the engine sees them, by all engines in one way, and
 * the program runs on. */
static void refuse_buffers(const char *backend)
{
    NEED(backend);
    float p[5] = {0}, w[60] = {0}, x[36] = {0}, y[15] = {0};
    int32_t words[36] = {0};
    const int64_t wide[] = {4, 9};
    tc_program *f = compile_rows(ctx, w, p);
    REQUIRE(f != NULL);
    const tc_buf good = TC_BUF(x, 36), out = TC_BUF(y, 15);
    tc_buf other = good;
    other.rank = 2;
    other.sizes = wide;
    const tc_buf wrong[] = {TC_BUF(x, 35), other, TC_BUF(words, 36), out};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(wrong[i]), TC_BUFS(out)), TC_ERR_BUFFER);
        CHECK_HAS(tc_program_error(f), "input 0");
    }
    CHECK_EQ_INT(tc_run(f, TC_BUFS(good), TC_BUFS(TC_BUF(y, 14))), TC_ERR_BUFFER);
    CHECK_HAS(tc_program_error(f), "output 0");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(good, good), TC_BUFS(out)), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(good), TC_BUFS(out)), TC_OK);
    for (int i = 0; i < 15; i++) {
        CHECK_CLOSE(y[i], 0.2, 1e-6);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(onnxruntime_is_not_given_wrong_buffers)
{
    refuse_buffers("onnxrt");
}

TEST(openvino_is_not_given_wrong_buffers)
{
    refuse_buffers("openvino");
}

TEST(xla_is_not_given_wrong_buffers)
{
    refuse_buffers("openxla");
}

TEST(tvm_is_not_given_wrong_buffers)
{
    refuse_buffers("tvm");
}

TEST(the_fastest_backend_is_measured)
{
    tc_ctx *ctx;
    tc_backend_time list[16];
    const char *name = NULL;
    int n = 0;
    look_in_venv();
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64), y = tc_exp(x);
    CHECK_MSG(tc_time_backends(TC_TENSORS(x), TC_TENSORS(y), 2, list, 16, &n) == TC_OK, "%s",
              tc_error(y));
    CHECK(n >= 2); /* the interpreter and native code, at least */
    for (int i = 0; i < n; i++) {
        CHECK(list[i].us > 0 && (i == 0 || list[i - 1].us <= list[i].us));
    }
    CHECK(tc_best_backend(TC_TENSORS(x), TC_TENSORS(y), 2, &name) == TC_OK);
    CHECK(name != NULL);
    CHECK_EQ_INT(tc_best_backend(TC_TENSORS(x), TC_TENSORS(y), 0, &name), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y), "not positive");
    CHECK_EQ_INT(tc_best_backend(TC_TENSORS(x), TC_TENSORS(y), 2, NULL), TC_ERR_ARGUMENT);
    x = tc_input(ctx, "x", TC_F32, TC_DIM("rows", 1, 8), 16); /* no size to measure */
    CHECK_EQ_INT(tc_best_backend(TC_TENSORS(x), TC_TENSORS(tc_exp(x)), 2, &name), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

/* ---- what is not there, or is no engine ---- */

/* Status and text of a compile for the backend, which runs nothing. */
static void refused(const char *backend, const char *text)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor y = tc_exp(tc_input(ctx, "x", TC_F32, 3));
    CHECK_EQ_INT(tc_compile(y, &f), TC_ERR_BACKEND);
    CHECK_HAS(tc_error(y), text);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* The path of a shared library made of that source; NULL: there is no compiler. */
static const char *library(const char *name, const char *source)
{
    char command[1200];
    io_spill(io_path("library.c"), source, strlen(source));
    snprintf(command, sizeof(command), "%s -shared -fPIC %s -o %s 2>/dev/null",
             getenv("TC_TEST_CC") ? getenv("TC_TEST_CC") : "cc", io_path("library.c"),
             io_path(name));
    return system(command) ? NULL : io_path(name);
}

TEST(a_library_that_is_missing_or_no_engine_is_refused)
{
    char backend[600];
    refused("openxla:/nowhere/plugin.so", "there is no file '/nowhere/plugin.so'");
    refused("openxla:abacus", "there is no platform 'abacus'");
    const char *path = library("empty.so", "int nothing;");
    if (!path) {
        SKIP("no C compiler");
    }
    snprintf(backend, sizeof(backend), "openxla:%s", path);
    refused(backend, "lacks GetPjrtApi");
    path = library("crash.so", "#include <stdlib.h>\n"
                               "__attribute__((constructor)) static void f(void) { abort(); }\n");
    snprintf(backend, sizeof(backend), "openxla:%s", path);
    refused(backend, "the process has loaded");
    io_clean();
}

TEST(a_path_that_is_too_long_names_no_library)
{
    const tci_engine_library l = {.file = "none.so", .package = "", .get = "?"};
    char option[600], path[480], text[TC_GRAPH_TEXT] = "";
    memset(option, '/', 500); /* the first bytes are a path that is there */
    snprintf(option + 500, sizeof(option) - 500, "nowhere.so");
    CHECK(!tci_engine_find(&l, option, path, text));
    CHECK_HAS(text, "there is no file '/");
}

TEST(a_library_that_crashes_while_it_is_loaded_is_refused)
{
    static tci_engine_library l = {.file = "crash.so",
                                   .package = "",
                                   .get = "?",
                                   .lock = TCI_MUTEX_INIT};
    char text[TC_GRAPH_TEXT] = "";
    const char *path = library("crash.so",
                               "#include <stdlib.h>\n"
                               "__attribute__((constructor)) static void f(void) { abort(); }\n");
    if (!path) {
        SKIP("no C compiler");
    }
    CHECK(tci_engine_open(&l, path, text) == NULL);
    CHECK_HAS(text, "crashes while it is loaded (signal 6)");
    io_clean();
}

TEST(a_provider_that_is_missing_is_named)
{
    NEED("onnxrt");
    refused("onnxrt:abacus", "there is no provider 'abacus'");
    refused("onnxrt:dnnl", "has no DnnlExecutionProvider, but");
    tc_ctx_free(ctx);
}

/* Makes an empty file in folders that are made too. */
static void plant(const char *path)
{
    char command[1400];
    snprintf(command, sizeof(command), "mkdir -p $(dirname '%s') && : >'%s'", path, path);
    REQUIRE(system(command) == 0);
}

/* The path below the environment at which a library is found with these files there; "": none. */
static const char *found_among(const char *const *files, int n)
{
    static char path[480];
    tci_engine_library l = {.file = "libabacus.so", .package = "abacus/libs", .get = "?"};
    char text[TC_GRAPH_TEXT], folder[400];
    const char *before = getenv("VIRTUAL_ENV");
    char *kept = before ? strdup(before) : NULL;
    snprintf(folder, sizeof(folder), "%s", io_path("venv"));
    for (int i = 0; i < n; i++) {
        char file[600];
        snprintf(file, sizeof(file), "%s/lib/%s", folder, files[i]);
        plant(file);
    }
    setenv("VIRTUAL_ENV", folder, 1);
    bool found = tci_engine_find(&l, "", path, text);
    if (kept) {
        setenv("VIRTUAL_ENV", kept, 1);
    } else {
        unsetenv("VIRTUAL_ENV");
    }
    free(kept);
    size_t below = strlen(folder) + strlen("/lib/");
    snprintf(folder, sizeof(folder), "rm -rf %s", io_path("venv"));
    CHECK(system(folder) == 0);
    io_clean();
    return found ? path + below : "";
}

#define FOUND_AMONG(...)                                                                           \
    found_among((const char *const[]){__VA_ARGS__},                                                \
                (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

#define SITE "/site-packages/abacus/libs/"

TEST(an_engine_is_found_in_a_python_environment)
{
    CHECK_STR(FOUND_AMONG("python3.11" SITE "libabacus.so.2", "python3.11" SITE "libabacus.so.3"),
              "python3.11" SITE "libabacus.so.3");
    CHECK_STR(FOUND_AMONG("python3.11" SITE "libother.so"), "");
}

TEST(the_newest_version_of_an_engine_is_found)
{
    CHECK_STR(FOUND_AMONG("python3.11" SITE "libabacus.so.1.9",
                          "python3.11" SITE "libabacus.so.1.32", "python3.11" SITE "libabacus.so"),
              "python3.11" SITE "libabacus.so.1.32");
    CHECK_STR(FOUND_AMONG("python3.11" SITE "libabacus.so.0099", /* no number is octal */
                          "python3.11" SITE "libabacus.so.100",
                          "python3.11" SITE "libabacus.so.99.1"),
              "python3.11" SITE "libabacus.so.100");
}

TEST(the_newest_python_that_has_the_engine_is_used)
{
    CHECK_STR(FOUND_AMONG("python3.9" SITE "libabacus.so", "python3.11" SITE "libabacus.so"),
              "python3.11" SITE "libabacus.so");
    CHECK_STR(FOUND_AMONG("python3.9/site-packages/readme", "python3.11" SITE "libabacus.so"),
              "python3.11" SITE "libabacus.so");
    CHECK_STR(FOUND_AMONG("python3.13/site-packages/readme", "python3.9" SITE "libabacus.so.1",
                          "python3.10/lib-dynload/readme"),
              "python3.9" SITE "libabacus.so.1");
    CHECK_STR(FOUND_AMONG("python3.13" SITE "other.so", /* as Debian has them */
                          "python3/dist-packages/abacus/libs/libabacus.so"),
              "python3/dist-packages/abacus/libs/libabacus.so");
}

TEST(an_engine_that_is_not_found_says_how_to_get_it)
{
    tci_engine_library none = {.file = "libabacus.so",
                               .package = "abacus",
                               .get = "pip install abacus"};
    char path[480], text[TC_GRAPH_TEXT];
    CHECK(!tci_engine_find(&none, "", path, text));
    CHECK_HAS(text, "libabacus.so is not in TC_ENGINES");
    CHECK_HAS(text, "pip install abacus");
}

TEST_MAIN
