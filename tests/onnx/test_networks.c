/* tests/onnx/test_networks.c - networks of examples/models, and their training steps, exported and
 * run by onnxruntime and XLA: against what PyTorch computed (tests/model_case.h), and against tc's
 * interpreter (tests/networks.h). Reference values of PyTorch: BERT is in tests/data, three more
 * networks are in ../shared/oracles where that is present. */
#include "inside.h"

#include "elsewhere.h"
#include "model_case.h"
#include "networks.h"
#include "tc_test.h"

/* Exports what r computes, and fills the buffers with what the engine makes of it. */
static bool run_elsewhere(mdl_run *r, const tc_tensor *outs, const tc_buf *bufs, int n)
{
    const char *names[NN_INPUTS + 4];
    char args[NN_INPUTS + 4][16];
    tc_tensor values[NN_INPUTS + 4];
    tc_ctx *ctx = r->model.ctx;
    tc_file *file = NULL;
    for (int i = 0; i < r->n_in; i++) {
        tc_tensor t = r->in_tensors[i];
        int64_t sizes[NN_RANK + 1];
        for (int a = 0; a < tc_rank(t); a++) {
            sizes[a] = tc_size(t, a);
        }
        snprintf(args[i], sizeof(args[i]), "arg%d", i);
        names[i] = args[i];
        values[i] = tc_copy_in_at(ctx, r->in[i].data, tc_dtype_of(t), tc_rank(t), sizes, NULL,
                                  TC_HERE);
    }
    if (tc_file_write(ctx, else_path(0, "in.safetensors"), names, TC_TENSORS_N(values, r->n_in),
                      NULL) ||
        else_export(else_by, 0, TC_TENSORS_N(r->in_tensors, r->n_in), TC_TENSORS_N(outs, n))) {
        mdl_say(r, "export", "%s", tc_error(ctx));
        return false;
    }
    else_run(else_by);
    if (tc_file_open(ctx, else_path(0, "out.safetensors"), &file)) {
        io_bytes why = io_slurp(else_path(0, "error"));
        mdl_say(r, "run", "%.*s", (int)(why.n < 400 ? why.n : 400), why.at);
        free(why.at);
        return false;
    }
    bool works = true;
    for (int i = 0; i < n && works; i++) {
        char name[24];
        snprintf(name, sizeof(name), "output%d", i);
        works = !tc_read_as_at(tc_file_copy_in(ctx, file, name), bufs[i], TC_HERE);
    }
    CHECK_MSG(works, "%s", tc_error(ctx));
    tc_file_close(file);
    io_clean();
    return works;
}

static void replay(else_kind kind, const char *name, const char *folder, const char *manifest_path,
                   bool train)
{
    static mdl_run r;
    char path[300];
    size_t bytes;
    if (!else_python(kind)) {
        SKIP("no Python with %s (TC_TEST_PYTHON)", else_module(kind));
    }
    char *text = json_read_file(manifest_path, &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest != NULL);
    snprintf(path, sizeof(path), "%s%s.safetensors", folder, name);
    else_by = kind;
    r = (mdl_run){.name = name,
                  .backend = "interp",
                  .train = train,
                  .out = stdout,
                  .elsewhere = run_elsewhere};
    r.meta = json_get(json_get(manifest, "tiny"), name);
    mdl_replay(&r, path);
    CHECK_MSG(r.failed == 0 && r.passed > 0, "%s: %d arrays agree, %d do not", name, r.passed,
              r.failed);
    printf("onnx/networks: %s%s by %s: %d arrays agree, %d skipped\n", name,
           train ? ", training" : "", else_module(kind), r.passed, r.skipped);
    json_free(manifest);
    free(text);
}

TEST(bert_runs_in_onnxruntime)
{
    replay(ELSE_ONNX, "bert", "tests/data/models/", "tests/data/models/models.json", true);
}

TEST(bert_runs_in_xla)
{
    replay(ELSE_STABLEHLO, "bert", "tests/data/models/", "tests/data/models/models.json", true);
}

TEST(networks_run_elsewhere)
{
    static const char *const names[] = {"resnet18", "mobilenet_v2", "vit_tiny_patch16_224"};
    if (!tct_soak) {
        SKIP("only in soak");
    } else if (access("../shared/oracles/models.json", R_OK)) {
        SKIP("../shared/oracles is not there");
    }
    for (int i = 0; i < 6; i++) {
        replay(i < 3 ? ELSE_ONNX : ELSE_STABLEHLO, names[i % 3], "../shared/oracles/",
               "../shared/oracles/models.json", true);
    }
}

/* ---- against the interpreter ---- */

/* What the engine made of the exported graph; NULL: a check failed. */
static float **read_outputs(const net *n)
{
    float **values = calloc((size_t)n->n_out + 1, sizeof(*values));
    st_file file;
    if (!st_open(&file, else_path(0, "out.safetensors"))) {
        io_bytes why = io_slurp(else_path(0, "error"));
        CHECK_MSG(false, "%s did not run: %.*s", n->c->name, (int)(why.n < 400 ? why.n : 400),
                  why.at);
        free(why.at);
        free(values);
        return NULL;
    }
    for (int i = 0; i < n->n_out; i++) {
        char name[24];
        snprintf(name, sizeof(name), "output%d", i);
        const st_array *a = st_find(&file, name);
        size_t bytes = (size_t)tc_nbytes(n->out[i]);
        values[i] = calloc(1, bytes + 1);
        CHECK(a && !strcmp(a->dtype, "F32") && a->bytes == bytes);
        if (a && a->bytes == bytes) {
            memcpy(values[i], a->data, bytes);
        }
    }
    st_close(&file);
    return values;
}

static void write_inputs(const net *n)
{
    tc_tensor values[NN_INPUTS];
    char args[NN_INPUTS][16];
    const char *names[NN_INPUTS];
    for (int i = 0; i < n->n_in; i++) {
        int64_t sizes[NN_RANK];
        for (int a = 0; a < tc_rank(n->in[i]); a++) {
            sizes[a] = tc_size(n->in[i], a);
        }
        snprintf(args[i], sizeof(args[i]), "arg%d", i);
        names[i] = args[i];
        values[i] = tc_copy_in_at(n->model.ctx, n->in_bufs[i].data, tc_dtype_of(n->in[i]),
                                  tc_rank(n->in[i]), sizes, NULL, TC_HERE);
    }
    CHECK_EQ_INT(tc_file_write(n->model.ctx, else_path(0, "in.safetensors"), names,
                               TC_TENSORS_N(values, n->n_in), NULL),
                 TC_OK);
}

static float **run_exported(net *n, const char *by, char text[300])
{
    float **values = NULL;
    (void)by;
    write_inputs(n);
    tc_status status = else_export(else_by, 0, TC_TENSORS_N(n->in, n->n_in),
                                   TC_TENSORS_N(n->out, n->n_out));
    snprintf(text, 300, "%s", status ? tc_error(n->model.ctx) : "see above");
    if (status == TC_OK) {
        else_run(else_by);
        values = read_outputs(n);
    }
    io_clean();
    return values;
}

static void compare_all(else_kind kind)
{
    if (!else_python(kind)) {
        SKIP("no Python with %s (TC_TEST_PYTHON)", else_module(kind));
    }
    else_by = kind;
    for (int i = 0; i < NET_CASES; i++) {
        bool is_short = !strcmp(net_cases[i].name, "squeezenet1_1") ||
                        !strcmp(net_cases[i].name, "gpt2");
        for (int train = 0; train < 2 && (tct_soak || is_short); train++) {
            net_compare(&net_cases[i], train, else_module(kind), run_exported);
        }
    }
}

TEST(networks_run_in_onnxruntime_as_interpreted)
{
    compare_all(ELSE_ONNX);
}

TEST(networks_run_in_xla_as_interpreted)
{
    compare_all(ELSE_STABLEHLO);
}

TEST_MAIN
