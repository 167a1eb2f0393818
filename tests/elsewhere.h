/* tests/elsewhere.h - programs of tc that others run: exports cases, lets tests/onnx/elsewhere.py
 * run them by onnxruntime or XLA, and reads the results.
 *
 * Needs a Python with onnxruntime, or jax: TC_TEST_PYTHON, build/venv/bin/python (.ci/run makes it)
 * or python3. */
#ifndef TC_TEST_ELSEWHERE_H
#define TC_TEST_ELSEWHERE_H

#include "io.h"
#include "oracle_run.h"
#include "tc_onnx.h"

typedef enum else_kind { ELSE_ONNX, ELSE_STABLEHLO } else_kind;
static else_kind else_by; /* the engine that orc_run.elsewhere runs */
static int else_opset;    /* tc_onnx_export.opset */

static const char *else_module(else_kind kind)
{
    return kind == ELSE_ONNX ? "onnxruntime" : "jax";
}

/* A Python that has the engine; NULL: none here. */
static const char *else_python(else_kind kind)
{
    static char found[2][256];
    const char *candidates[] = {getenv("TC_TEST_PYTHON"), "build/venv/bin/python", "python3"};
    for (int i = 0; i < 3 && !*found[kind]; i++) {
        char command[400];
        if (candidates[i]) {
            snprintf(command, sizeof(command), "%s -c 'import %s' >/dev/null 2>&1", candidates[i],
                     else_module(kind));
            if (system(command) == 0) {
                snprintf(found[kind], sizeof(found[kind]), "%s", candidates[i]);
            }
        }
    }
    return *found[kind] ? found[kind] : NULL;
}

/* The path of file `what` of case n; until the next call but three. */
static const char *else_path(int n, const char *what)
{
    char name[64];
    snprintf(name, sizeof(name), "%d.%s", n, what);
    return io_path(name);
}

/* Exports case n, with its inputs' values in the order of the graph. */
static tc_status else_export(else_kind kind, int n, tc_tensors inputs, tc_tensors outputs)
{
    const tc_onnx_export how = {.opset = else_opset};
    return kind == ELSE_ONNX ? tc_export_onnx(inputs, outputs, &how, else_path(n, "onnx"))
                             : tc_export_stablehlo(inputs, outputs, NULL, else_path(n, "mlir"));
}

/* Runs all cases of the folder. */
TCT_UNUSED static void else_run(else_kind kind)
{
    char command[600];
    snprintf(command, sizeof(command), "%s tests/onnx/elsewhere.py %s %s >%s 2>&1",
             else_python(kind), kind == ELSE_ONNX ? "onnx" : "stablehlo", io_dir, io_path("log"));
    int code = system(command);
    if (code) {
        io_bytes log = io_slurp(io_path("log"));
        CHECK_MSG(!code, "elsewhere.py: %.*s", (int)(log.n < 800 ? log.n : 800), log.at);
        free(log.at);
    }
}

/* Runs the graph of `outputs` over `inputs` on `values` by the engine, and compares what it gives
 * with `wanted`: |difference| <= bound (1 + |wanted|). */
TCT_UNUSED static void else_compare(tc_ctx *ctx, else_kind kind, tc_tensors inputs,
                                    tc_tensors values, tc_tensors outputs, tc_tensors wanted,
                                    double bound)
{
    char names[8][16];
    const char *list[8];
    tc_file *file = NULL;
    for (int i = 0; i < values.n; i++) {
        snprintf(names[i], sizeof(names[i]), "arg%d", i);
        list[i] = names[i];
    }
    CHECK_EQ_INT(tc_file_write(ctx, else_path(0, "in.safetensors"), list, values, NULL), TC_OK);
    CHECK_MSG(else_export(kind, 0, inputs, outputs) == TC_OK, "%s", tc_error(ctx));
    else_run(kind);
    if (tc_file_open(ctx, else_path(0, "out.safetensors"), &file)) {
        io_bytes why = io_slurp(else_path(0, "error"));
        CHECK_MSG(false, "did not run: %.*s", (int)(why.n < 400 ? why.n : 400), why.at);
        free(why.at);
        return;
    }
    for (int i = 0; i < outputs.n; i++) {
        char name[24];
        bool same = false;
        snprintf(name, sizeof(name), "output%d", i);
        tc_tensor got = tc_file_copy_in(ctx, file, name), want = wanted.items[i];
        CHECK_MSG(tc_dtype_of(got) == tc_dtype_of(want), "output %d is %s", i,
                  tc_dtype_name(tc_dtype_of(got)));
        tc_tensor close = tc_allclose(tc_cast(got, TC_F64), tc_cast(want, TC_F64), bound, bound,
                                      true);
        CHECK_MSG(tc_read(close, &same, 1) == TC_OK, "output %d: %s", i, tc_error(close));
        CHECK_MSG(same, "output %d has other values", i);
    }
    tc_file_close(file);
}

/* ---- cases of the oracle ---- */

static bool else_write_inputs(const orc_run *r, const orc_case *c, int n)
{
    st_array arrays[ORC_MAX_TENSORS];
    char names[ORC_MAX_TENSORS][16];
    for (int i = 0; i < c->n_inputs; i++) {
        const st_array *a = st_find(r->arrays, json_string(c->input_specs[i], "t"));
        snprintf(names[i], sizeof(names[i]), "arg%d", i);
        if (!a) {
            return false;
        }
        arrays[i] = *a;
        arrays[i].name = names[i];
    }
    return st_write(else_path(n, "in.safetensors"), arrays, c->n_inputs);
}

/* The least relative error that passes: onnxruntime's Sigmoid, Erf and Tanh have 1e-4, and cases
 * of the table more than others. */
static double else_error(const orc_case *c)
{
    static const struct {
        else_kind kind;
        bool gradients;
        int id;
        const char *op;
        double error;
    } rows[] = {
        {ELSE_STABLEHLO, true, 4085, "native_layer_norm", 2e-5}, /* rsqrt of a variance near 0 */
    };
    const json *id = json_get(c->spec, "id");
    double error = else_by == ELSE_ONNX ? 1e-4 : 1e-5;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        bool is = id && rows[i].kind == else_by && rows[i].gradients == c->gradients &&
                  rows[i].id == id->integer && !strcmp(rows[i].op, json_string(c->spec, "op"));
        error = is ? rows[i].error : error;
    }
    return error;
}

/* The outputs of case n as elsewhere.py wrote them: of tc's dtypes and sizes. */
static void else_judge(orc_run *r, orc_case *c, int n)
{
    orc_least_error = else_error(c);
    void *outputs[ORC_MAX_TENSORS] = {NULL};
    st_file file;
    char text[256] = "";
    if (!st_open(&file, else_path(n, "out.safetensors"))) {
        io_bytes why = io_slurp(else_path(n, "error"));
        if (why.n > 5 && !memcmp(why.at, "skip:", 5)) {
            orc_skipped(r, c->spec, "an array that the engine's Python cannot hold");
        } else {
            orc_fail(r, c->spec, "did not run: %.*s", (int)(why.n < 400 ? why.n : 400), why.at);
        }
        free(why.at);
        return;
    }
    for (int i = 0; i < c->n_outputs && !*text; i++) {
        char name[24];
        snprintf(name, sizeof(name), "output%d", i);
        const st_array *a = st_find(&file, name);
        const orc_dtype *own = orc_dtype_get(tc_dtype_of(c->outputs[i]));
        size_t bytes = (size_t)tc_count(c->outputs[i]) * own->bytes;
        if (!a || strcmp(a->dtype, own->stored) || a->bytes != bytes) {
            snprintf(text, sizeof(text), "output %d is %s of %zu bytes, expected %s of %zu", i,
                     a ? a->dtype : "nothing", a ? a->bytes : 0, own->stored, bytes);
        } else {
            outputs[i] = orc_memory(bytes);
            memcpy(outputs[i], a->data, bytes);
        }
    }
    if (*text) {
        orc_fail(r, c->spec, "%s", text);
    } else {
        orc_judge_outputs(r, c, outputs);
    }
    for (int i = 0; i < ORC_MAX_TENSORS; i++) {
        free(outputs[i]);
    }
    st_close(&file);
}

/* Gradients of equal operands: halved since PyTorch 2.15, as in tc; the cases are of 2.11. */
static bool else_is_halved(const orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    static const char *const ops[] = {"fmax", "fmin", "clamp_max", "clamp_min"};
    bool is = false;
    for (int i = 0; i < 4; i++) {
        is = is || !strcmp(op, ops[i]);
    }
    return c->gradients && is;
}

/* For orc_run.elsewhere: exports all cases, runs them in one process, compares. */
static void else_flush(orc_run *r, orc_pending *pending, int n)
{
    bool *runs = (bool *)calloc((size_t)n + 1, sizeof(*runs));
    for (int i = 0; i < n; i++) {
        orc_case *c = &pending[i].c;
        tc_tensors in = {c->inputs, c->n_inputs}, out = {c->outputs, c->n_outputs};
        tc_status status = c->n_outputs ? else_export(else_by, i, in, out) : TC_ERR_ARGUMENT;
        runs[i] = status == TC_OK && else_write_inputs(r, c, i);
        if (runs[i] && else_is_halved(c)) {
            runs[i] = false;
            orc_skipped(r, c->spec, "the gradient of equal operands is of PyTorch 2.11");
        } else if (status == TC_ERR_UNSUPPORTED) {
            orc_skipped(r, c->spec, tc_error(c->ctx));
        } else if (!runs[i]) {
            orc_fail(r, c->spec, "not exported: %s", tc_error(c->ctx));
        }
    }
    else_run(else_by);
    for (int i = 0; i < n; i++) {
        if (runs[i]) {
            else_judge(r, &pending[i].c, i);
        }
    }
    free(runs);
    io_clean();
}

/* Replays the cases of BASE.json, or their gradients: a tenth of them, in soak all. At least so
 * many must pass, and none fail. */
TCT_UNUSED static void else_replay(else_kind kind, const char *base, bool gradients, int least)
{
    static orc_run r;
    static st_file arrays;
    char path[200];
    size_t bytes;
    if (!else_python(kind)) {
        SKIP("no Python with %s (TC_TEST_PYTHON)", else_module(kind));
    }
    snprintf(path, sizeof(path), "%s.json", base);
    if (access(path, R_OK)) {
        SKIP("%s is not there", path);
    }
    char *text = json_read_file(path, &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    snprintf(path, sizeof(path), "%s.safetensors", base);
    REQUIRE(manifest && st_open(&arrays, path));
    memset(&r, 0, sizeof(r));
    else_by = kind;
    r.manifest = manifest;
    r.arrays = &arrays;
    r.elsewhere = else_flush;
    r.differentiate = gradients;
    r.every = tct_soak ? 0 : 10;
    r.quiet = true;
    CHECK(orc_run_list(&r, json_get(manifest, "cases"), false));
    orc_report(&r);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= least, "only %d cases passed, %d are skipped", r.passed, r.skipped);
    printf("onnx/%s: %d reference %s passed, %d skipped\n",
           kind == ELSE_ONNX ? "export" : "stablehlo", r.passed, gradients ? "gradients" : "cases",
           r.skipped);
    st_close(&arrays);
    json_free(manifest);
    free(text);
}

#endif
