/* tests/onnx/cases.h - judges ONNX models by the outputs that the ONNX project gives for them.
 *
 * In: a backend, and the cases kept in tests/data/onnx (its README.md says where they are from), or
 * all 574 of ../shared/onnx. Out: checks, and how many were judged. Includes follow inside.h. */
#ifndef TC_TEST_ONNX_CASES_H
#define TC_TEST_ONNX_CASES_H

#include <math.h>
#include <unistd.h>

#include "io.h"
#include "json.h"
#include "tc_onnx.h"
#include "tc_test.h"

#define CASES "tests/data/onnx/cases.safetensors"
enum { MAX = 64 };

static tc_ctx *ctx;

static void begin(const char *backend)
{
    tc_options o = {.backend = backend,
                    .threads = 1,
                    .fallback = strcmp(backend, "emulated") ? TC_FALLBACK_ALLOW
                                                            : TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

TCT_UNUSED static void end(void)
{
    tc_ctx_free(ctx);
}

/* ---- one case ---- */

typedef struct values { /* arrays by name, in memory of their own */
    int n;
    const char *names[MAX];
    const tc_array *arrays[MAX];
    void *data[MAX];
} values;

static void *read_array(tc_file *file, const tc_array *a, int64_t *bytes)
{
    tc_tensor t = tc_file_copy_in(ctx, file, a->name);
    *bytes = tc_nbytes(t);
    void *data = malloc((size_t)*bytes + 1);
    CHECK_MSG(tc_read(t, data, *bytes) == TC_OK, "%s: %s", a->name, tc_error(t));
    return data;
}

static void free_values(values *v)
{
    for (int i = 0; i < v->n; i++) {
        free(v->data[i]);
    }
}

/* Element i as a number. */
static double element(tc_dtype d, const void *data, int64_t i)
{
    switch ((int)d) {
    case TC_BOOL:
    case TC_U8: return ((const uint8_t *)data)[i];
    case TC_I8: return ((const int8_t *)data)[i];
    case TC_U16: return ((const uint16_t *)data)[i];
    case TC_I16: return ((const int16_t *)data)[i];
    case TC_U32: return ((const uint32_t *)data)[i];
    case TC_I32: return ((const int32_t *)data)[i];
    case TC_U64: return (double)((const uint64_t *)data)[i];
    case TC_I64: return (double)((const int64_t *)data)[i];
    case TC_F16: return (double)tci_f16_bits_to_f32(((const uint16_t *)data)[i]);
    case TC_BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        float x;
        memcpy(&x, &bits, 4);
        return (double)x;
    }
    case TC_F32: return (double)((const float *)data)[i];
    default: return ((const double *)data)[i];
    }
}

/* The judge's rule: the case's tolerances, and at least a millionth of the largest element; of
 * halves two units in the last place; integers exactly. */
static bool is_close(const tc_array *want, const void *data, const void *got, double rtol,
                     double atol)
{
    bool floats = want->dtype >= TC_F16;
    double largest = 0;
    int64_t n = 1;
    for (int d = 0; d < want->rank; d++) {
        n *= want->sizes[d];
    }
    for (int64_t i = 0; i < n && floats; i++) {
        double x = fabs(element(want->dtype, data, i));
        largest = isfinite(x) && x > largest ? x : largest;
    }
    if (tc_dtype_size(want->dtype) == 2) {
        double eps = want->dtype == TC_F16 ? ldexp(1, -10) : ldexp(1, -7);
        rtol = fmax(rtol, 2 * eps);
        atol = fmax(atol, 2 * eps);
    }
    atol = fmax(atol, fmax(1e-7, want->dtype == TC_F64 ? 0 : 1e-6 * largest));
    for (int64_t i = 0; i < n; i++) {
        double x = element(want->dtype, got, i), y = element(want->dtype, data, i);
        bool same = x == y || (isnan(x) && isnan(y));
        if (!same && (!floats || !(fabs(x - y) <= atol + rtol * fabs(y)) || isinf(y))) {
            return false;
        }
    }
    return true;
}

/* Output i of the model, evaluated with the values of its inputs, is what the case says. */
static void judge_output(const char *name, tc_tensor y, tc_tensor count, int axis,
                         const values *outs, int i, const double *tolerance)
{
    const tc_array *want = outs->arrays[i];
    if (count.ctx) {
        int64_t n = 0;
        REQUIRE(tc_read(count, &n, 1) == TC_OK);
        y = tc_slice(y, axis, 0, n, 1);
    }
    bool fits = tc_dtype_of(y) == want->dtype && tc_rank(y) == want->rank;
    for (int d = 0; d < want->rank && fits; d++) {
        fits = tc_size(y, d) == want->sizes[d];
    }
    CHECK_MSG(fits, "%s: output %s has another dtype or shape", name, outs->names[i]);
    int64_t bytes = tc_nbytes(y);
    void *got = malloc((size_t)TCI_MAX(bytes, 0) + 1);
    CHECK_MSG(tc_read(y, got, bytes) == TC_OK, "%s: %s", name, tc_error(y));
    CHECK_MSG(!fits || is_close(want, outs->data[i], got, tolerance[0], tolerance[1]),
              "%s: output %s has other values", name, outs->names[i]);
    free(got);
}

static int find(const values *v, const char *name)
{
    int i = 0;
    while (i < v->n && strcmp(v->names[i], name)) {
        i++;
    }
    REQUIRE(i < v->n);
    return i;
}

/* Writes the model anew, with the sizes that it was told, and loads that; false: it has no form. */
static bool round_trip(const char *name, tc_onnx_model **m)
{
    tc_onnx_export how = {.output_names = (*m)->output_names};
    tc_onnx_model *again = NULL;
    bool cut = false;
    for (int i = 0; i < (*m)->n_outputs; i++) {
        cut = cut || (*m)->counts[i].ctx;
    }
    tc_status status = cut ? TC_ERR_UNSUPPORTED
                           : tc_export_onnx(TC_TENSORS_N((*m)->inputs, (*m)->n_inputs),
                                            TC_TENSORS_N((*m)->outputs, (*m)->n_outputs), &how,
                                            io_path("again.onnx"));
    CHECK_MSG(status == TC_OK || status == TC_ERR_UNSUPPORTED, "%s: %s", name, tc_error(ctx));
    if (status != TC_OK) {
        return false;
    }
    CHECK_MSG(tc_onnx_load(ctx, io_path("again.onnx"), NULL, &again) == TC_OK, "%s: %s", name,
              tc_error(ctx));
    REQUIRE(again != NULL);
    tc_onnx_free(*m);
    *m = again;
    return true;
}

/* Every value is told, so that shapes may follow from any; what is left of the inputs is bound by a
 * run. Returns whether the model is supported. */
static bool judge_case(const char *name, const void *model, size_t n, const values *ins,
                       const values *outs, const double *tolerance, bool twice)
{
    tc_onnx_input told[MAX];
    tc_onnx_model *m = NULL;
    for (int i = 0; i < ins->n; i++) {
        told[i] = (tc_onnx_input){ins->names[i], ins->arrays[i]->rank, ins->arrays[i]->sizes,
                                  ins->data[i]};
    }
    tc_onnx_options options = {.inputs = told, .n_inputs = ins->n};
    REQUIRE(tc_scope_begin(ctx) == TC_OK);
    tc_status status = tc_onnx_load_memory(ctx, model, n, &options, &m);
    CHECK_MSG(status == TC_OK || status == TC_ERR_UNSUPPORTED, "%s", tc_error(ctx));
    if (status == TC_OK && twice && !round_trip(name, &m)) {
        tc_onnx_free(m);
        status = TC_ERR_UNSUPPORTED;
    }
    if (status == TC_OK) {
        tc_tensor ys[2 * MAX], kept[2 * MAX];
        tc_buf in[MAX], out[2 * MAX];
        int n_out = m->n_outputs;
        tc_program *f = NULL;
        for (int i = 0; i < m->n_outputs; i++) {
            ys[i] = m->outputs[i];
            ys[n_out] = m->counts[i];
            n_out += m->counts[i].ctx != NULL;
        }
        for (int i = 0; i < m->n_inputs; i++) {
            int at = find(ins, m->input_names[i]);
            in[i] = TC_BUF(ins->data[at], tc_nbytes(m->inputs[i]));
        }
        CHECK_MSG(tc_compile_fn(TC_TENSORS_N(m->inputs, m->n_inputs), TC_TENSORS_N(ys, n_out), NULL,
                                &f) == TC_OK,
                  "%s: %s", name, tc_error(ctx));
        for (int i = 0; i < n_out; i++) {
            out[i] = TC_BUF((void *)malloc((size_t)tc_nbytes(ys[i]) + 1), tc_nbytes(ys[i]));
        }
        CHECK_MSG(f && tc_run(f, TC_BUFS_N(in, m->n_inputs), TC_BUFS_N(out, n_out)) == TC_OK,
                  "%s: %s", name, f ? tc_error(f) : "");
        for (int i = 0; i < n_out; i++) {
            int64_t sizes[16];
            for (int d = 0; d < tc_rank(ys[i]); d++) {
                sizes[d] = tc_size(ys[i], d);
            }
            kept[i] = tc_copy_in_at(ctx, out[i].data, tc_dtype_of(ys[i]), tc_rank(ys[i]), sizes,
                                    NULL, TC_HERE);
            free(out[i].data);
        }
        for (int i = 0, count = m->n_outputs; i < m->n_outputs; i++) {
            bool cut = m->counts[i].ctx != NULL;
            int at = find(outs, m->output_names[i]);
            judge_output(name, kept[i], cut ? kept[count] : (tc_tensor){NULL, 0, 0}, m->axes[i],
                         outs, at, tolerance);
            count += cut;
        }
        tc_program_free(f);
        tc_onnx_free(m);
    }
    CHECK(tc_scope_end(ctx) == TC_OK);
    return status == TC_OK;
}

/* Arrays "CASE|in|NAME" of a file of cases. */
static void collect(tc_file *file, const char *name, const char *kind, values *v)
{
    char prefix[256];
    int64_t bytes;
    size_t n = (size_t)snprintf(prefix, sizeof(prefix), "%s|%s|", name, kind);
    v->n = 0;
    for (int i = 0; tc_file_array(file, i); i++) {
        const tc_array *a = tc_file_array(file, i);
        if (!strncmp(a->name, prefix, n) && v->n < MAX) {
            v->names[v->n] = a->name + n;
            v->arrays[v->n] = a;
            v->data[v->n++] = read_array(file, a, &bytes);
        }
    }
}

/* Each `step`-th of the kept cases; returns how many were judged. twice: as they are after export,
 * where they have a form. */
TCT_UNUSED static int judge_kept(int step, bool twice)
{
    static values ins, outs;
    tc_file *file = NULL;
    int cases = 0, judged = 0;
    REQUIRE(tc_file_open(ctx, CASES, &file) == TC_OK);
    for (int i = 0; tc_file_array(file, i); i++) {
        const tc_array *a = tc_file_array(file, i);
        const char *end = strstr(a->name, "|model");
        char name[200];
        if (!end || cases++ % step) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(end - a->name), a->name);
        collect(file, name, "in", &ins);
        collect(file, name, "out", &outs);
        int64_t bytes, tolerance_bytes;
        char key[256];
        snprintf(key, sizeof(key), "%s|tolerance", name);
        void *model = read_array(file, a, &bytes);
        double *tolerance = read_array(file, tc_file_find(file, key), &tolerance_bytes);
        bool done = judge_case(name, model, (size_t)bytes, &ins, &outs, tolerance, twice);
        CHECK_MSG(done || twice, "%s is refused: %s", name, tc_error(ctx));
        judged += done;
        free(model);
        free(tolerance);
        free_values(&ins);
        free_values(&outs);
    }
    tc_file_close(file);
    return judged;
}

/* ---- all cases, where they are ---- */

static void file_values(const char *path, tc_file **file, values *v)
{
    int64_t bytes;
    REQUIRE(tc_file_open(ctx, path, file) == TC_OK);
    v->n = 0;
    for (int i = 0; tc_file_array(*file, i) && v->n < MAX; i++) {
        v->arrays[v->n] = tc_file_array(*file, i);
        v->names[v->n] = v->arrays[v->n]->name;
        v->data[v->n] = read_array(*file, v->arrays[v->n], &bytes);
        v->n++;
    }
}

static double number_of(const json *c, const char *key)
{
    const json *v = json_get(c, key);
    return v ? v->number : 0;
}

TCT_UNUSED static void judge_project(const char *backend)
{
    static values ins, outs;
    char command[256], path[400];
    int judged = 0, refused = 0;
    if (access("../shared/onnx/cases.tar.gz", R_OK)) {
        SKIP("../shared/onnx/cases.tar.gz is not there");
    }
    begin(backend);
    snprintf(command, sizeof(command), "tar -xzf ../shared/onnx/cases.tar.gz -C %s",
             (io_path("x"), io_dir));
    REQUIRE(system(command) == 0);
    io_bytes text = io_slurp(io_path("manifest.json"));
    text.at[text.n] = 0;
    json *manifest = json_parse((const char *)text.at);
    REQUIRE(manifest != NULL);
    for (const json *c = json_get(manifest, "cases")->first; c; c = c->next) {
        const char *name = json_get(c, "name")->string;
        const double tolerance[2] = {number_of(c, "rtol"), number_of(c, "atol")};
        tc_file *in = NULL, *out = NULL;
        snprintf(path, sizeof(path), "%s/%s.in.safetensors", io_dir, name);
        file_values(path, &in, &ins);
        snprintf(path, sizeof(path), "%s/%s.out.safetensors", io_dir, name);
        file_values(path, &out, &outs);
        snprintf(path, sizeof(path), "%s/%s.onnx", io_dir, name);
        io_bytes model = io_slurp(path);
        refused += !judge_case(name, model.at, model.n, &ins, &outs, tolerance, false);
        judged++;
        free(model.at);
        free_values(&ins);
        free_values(&outs);
        tc_file_close(in);
        tc_file_close(out);
    }
    CHECK_EQ_INT(judged, 574);
    CHECK_EQ_INT(refused, 3); /* NonMaxSuppression */
    json_free(manifest);
    free(text.at);
    end();
    io_clean();
}

#endif
