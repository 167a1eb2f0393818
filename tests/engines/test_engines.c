/* tests/engines/test_engines.c - onnxruntime, OpenVINO and XLA as backends by name: cases and
 * networks that other libraries computed, through each engine that is installed. Libraries are
 * looked for in TC_ENGINES, else in build/venv (.ci/run makes it); an engine that is not there is a
 * skip. TC_TEST_SOAK replays all cases. */
#define TC_DYNAMIC_SHAPES
#include "tc.h"

#include "../examples/models/sentences.h"
#include "model_case.h"
#include "oracle_run.h"
#include "tc_engines.h"
#include "tc_test.h"

#include <dirent.h>
#include <pthread.h>
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

/* A context of the backend, which refuses rather than replaces; NULL: the engine is not there. */
static tc_ctx *context(const char *backend)
{
    const tc_backend_entry *e;
    tc_ctx *ctx = NULL;
    look_in_venv();
    size_t n = strcspn(backend, ":");
    for (int i = 0; (e = tc_backend_at(i)); i++) {
        if (strlen(e->name) == n && !memcmp(e->name, backend, n) && e->usable) {
            tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE, .threads = 2};
            REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        }
    }
    return ctx;
}

#define NEED(backend)                                                                              \
    tc_ctx *ctx = context(backend);                                                                \
    if (!ctx) {                                                                                    \
        SKIP("%s is not installed (TC_ENGINES)", backend);                                         \
    }

/* ---- cases of the oracle ---- */

/* Replays a thirtieth of the cases, in soak all; `least` of them must pass, none may fail. */
static void replay(const char *backend, int least)
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
    r = (orc_run){.manifest = manifest, .arrays = &arrays, .backend = backend, .quiet = true,
                  .may_refuse = true, .every = soak ? 0 : 12};
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

TEST(onnxruntime_gives_what_pytorch_gives)
{
    replay("onnxrt", 60);
}

TEST(openvino_gives_what_pytorch_gives)
{
    replay("openvino", 40);
}

TEST(xla_gives_what_pytorch_gives)
{
    replay("openxla", 60);
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
    tc_ctx_free(ctx);
}

TEST(a_bert_runs_by_onnxruntime)
{
    run_networks("onnxrt");
}

TEST(a_bert_runs_by_openvino)
{
    run_networks("openvino");
}

TEST(a_bert_runs_by_xla)
{
    run_networks("openxla");
}

TEST_MAIN
