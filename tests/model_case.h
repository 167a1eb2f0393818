/* tests/model_case.h - a network of examples/models against a reference file.
 *
 * In: models.json (its "doc" says what is in it) and a .safetensors with weights "w/KEY", inputs
 * "in/NAME" and what another library makes of them: "eval/NAME", and of a training step
 * "train/NAME", "train/loss", "grad/KEY", "grad_in/x", and "after/KEY", the buffers that the step
 * changed. Out: how many of these arrays agree; those of the step are skipped where none is made.
 * Design: what the network computes is a list of tensors by these names, so one program makes
 * it all, and one walk over the file compares it. */
#ifndef TC_TEST_MODEL_CASE_H
#define TC_TEST_MODEL_CASE_H

#include "../examples/models/models.h"
#include "json.h"

enum { MDL_NAME = 2 * NN_NAME };

typedef struct mdl_value {
    char name[MDL_NAME]; /* as in the file */
    tc_tensor tensor;
    double *data; /* what was computed; NULL before */
    int64_t n;
    bool failed;
} mdl_value;

typedef struct mdl_run mdl_run;
struct mdl_run {
    const char *name, *backend;
    /* Computes the n tensors, into the buffers, by other means than tc's programs, without effects
     * (tests/elsewhere.h); NULL: none */
    bool (*elsewhere)(mdl_run *r, const tc_tensor *outs, const tc_buf *bufs, int n);
    bool train;
    const json *meta; /* of this network */
    FILE *out;        /* for what fails; NULL: nowhere */
    int passed, failed, skipped;
    char first[MDL_NAME]; /* the first layer that differs, in the order of the computation */

    const nn_network *network;
    nn_model model;
    tc_tensor inputs[NN_INPUTS];
    tc_buf in[NN_INPUTS + 4]; /* their values, and those of what the loss takes */
    tc_tensor in_tensors[NN_INPUTS + 4];
    int n_in;
    mdl_value *values;
    int n_values;
};

static void mdl_say(mdl_run *r, const char *name, const char *format, ...)
{
    va_list list;
    r->failed++;
    if (r->out) {
        fprintf(r->out, "%s %s: FAIL ", r->name, name);
        va_start(list, format);
        vfprintf(r->out, format, list);
        va_end(list);
        fprintf(r->out, "\n");
    }
}

/* ---- numbers ---- */

static double mdl_number(const void *data, tc_dtype dtype, int64_t i)
{
    return dtype == TC_F32   ? (double)((const float *)data)[i]
           : dtype == TC_F64 ? ((const double *)data)[i]
           : dtype == TC_I64 ? (double)((const int64_t *)data)[i]
                             : (double)NAN;
}

/* The elements of a tensor with memory; NULL: the error is told. */
static void *mdl_read(mdl_run *r, const char *name, tc_tensor t)
{
    int64_t bytes = tc_nbytes(t);
    void *data = malloc((size_t)(bytes > 0 ? bytes : 0) + 1);
    if (data && tc_read(t, data, bytes)) {
        mdl_say(r, name, "%s", tc_error(t));
        free(data);
        return NULL;
    }
    return data;
}

static double *mdl_numbers(mdl_run *r, const char *name, tc_tensor t)
{
    void *data = mdl_read(r, name, t);
    double *numbers = malloc((size_t)(data ? tc_count(t) : 0) * sizeof(double) + 1);
    for (int64_t i = 0; data && i < tc_count(t); i++) {
        numbers[i] = mdl_number(data, tc_dtype_of(t), i);
    }
    free(data);
    return data ? numbers : NULL;
}

/* How far a number may be off: "check" has the scale of the result and the error of torch's own
 * f32. A whole number, as a count of batches, is exact. */
static double mdl_bound(const mdl_run *r, const char *name, tc_dtype dtype, double want)
{
    const json *check = json_get(json_get(r->meta, "check"), name);
    double scale = check && check->n == 2 ? check->first->number : 1;
    double err = check && check->n == 2 ? check->first->next->number : 0;
    return dtype == TC_I64 ? 0 : fmax(1e-5, 8 * err) * (scale + fabs(want));
}

static void mdl_compare(mdl_run *r, mdl_value *v, tc_tensor wanted)
{
    double *want = mdl_numbers(r, v->name, wanted);
    if (!want || tc_count(wanted) != v->n) {
        mdl_say(r, v->name, "%d elements, expected %d", (int)v->n, (int)tc_count(wanted));
        free(want);
        return;
    }
    int64_t worst = 0, wrong = 0;
    double most = 0;
    for (int64_t i = 0; i < v->n; i++) {
        double off = fabs(v->data[i] - want[i]);
        double bound = mdl_bound(r, v->name, tc_dtype_of(wanted), want[i]);
        bool is_wrong = !(off <= bound); /* also a NaN */
        wrong += is_wrong;
        if (is_wrong && !(off - bound <= most)) {
            most = off - bound;
            worst = i;
        }
    }
    v->failed = wrong > 0;
    if (wrong) {
        mdl_say(r, v->name, "%d of %d elements; %d is %.9g, expected %.9g within %.2g", (int)wrong,
                (int)v->n, (int)worst, v->data[worst], want[worst],
                mdl_bound(r, v->name, tc_dtype_of(wanted), want[worst]));
    } else {
        r->passed++;
    }
    free(want);
}

/* ---- what is computed ---- */

static void mdl_add(mdl_run *r, const char *folder, const char *name, tc_tensor t)
{
    if (nn_grow(&r->model, &r->values, r->n_values, sizeof(*r->values))) {
        mdl_value *v = &r->values[r->n_values++];
        memset(v, 0, sizeof(*v));
        snprintf(v->name, sizeof(v->name), "%s/%s", folder, name);
        v->tensor = t;
    }
}

/* The values of an array of the file become an input of the program. */
static tc_tensor mdl_input(mdl_run *r, const char *name)
{
    tc_ctx *ctx = r->model.ctx;
    tc_tensor t = tc_file_borrow(ctx, r->model.file, name);
    int64_t list[NN_RANK + 1] = {tc_dtype_of(t)};
    for (int i = 0; i < tc_rank(t); i++) {
        list[i + 1] = tc_size(t, i);
    }
    tc_tensor input = tc_input_at(ctx, name, tc_rank(t) + 1, list, TC_HERE);
    r->in[r->n_in] = (tc_buf){.data = mdl_read(r, name, t), .n = tc_nbytes(t), .dtype = -1};
    r->in_tensors[r->n_in++] = input;
    return input;
}

/* Compiles and runs the program of n tensors and the effects after them. */
static bool mdl_evaluate_here(mdl_run *r, const tc_tensor *outs, const tc_buf *bufs, int n)
{
    tc_program *f = NULL;
    bool works = false;
    tc_tensors all = TC_TENSORS_N(outs, n + r->model.n_effects);
    if (tc_compile_fn(TC_TENSORS_N(r->in_tensors, r->n_in), all, NULL, &f)) {
        mdl_say(r, "compile", "%s", tc_error(r->model.ctx));
    } else if (tc_run(f, TC_BUFS_N(r->in, r->n_in), TC_BUFS_N(bufs, n))) {
        mdl_say(r, "run", "%s", tc_error(f));
    } else {
        works = true;
    }
    tc_program_free(f);
    return works;
}

/* Runs one program of all values from the first on, and after it the effects. */
static bool mdl_evaluate(mdl_run *r, int first)
{
    int n = r->n_values - first;
    tc_tensor *outs = malloc((size_t)(n + r->model.n_effects + 1) * sizeof(*outs));
    tc_buf *bufs = calloc((size_t)n + 1, sizeof(*bufs));
    for (int i = 0; i < n; i++) {
        tc_tensor t = outs[i] = r->values[first + i].tensor;
        int64_t bytes = tc_nbytes(t);
        bufs[i] = (tc_buf){.data = malloc((size_t)(bytes > 0 ? bytes : 0) + 1),
                           .n = bytes,
                           .dtype = -1};
    }
    for (int i = 0; i < r->model.n_effects; i++) {
        outs[n + i] = r->model.effects[i];
    }
    bool works = !*nn_error(&r->model);
    if (!works) {
        mdl_say(r, "build", "%s", nn_error(&r->model));
    } else {
        works = r->elsewhere ? r->elsewhere(r, outs, bufs, n) : mdl_evaluate_here(r, outs, bufs, n);
    }
    for (int i = 0; i < n; i++) {
        mdl_value *v = &r->values[first + i];
        v->n = works ? tc_count(v->tensor) : 0;
        v->data = calloc((size_t)v->n + 1, sizeof(double));
        for (int64_t k = 0; k < v->n; k++) {
            v->data[k] = mdl_number(bufs[i].data, tc_dtype_of(v->tensor), k);
        }
        free(bufs[i].data);
    }
    free(outs);
    free(bufs);
    return works;
}

/* The network in the present mode; its outputs become values "FOLDER/NAME". */
static void mdl_build(mdl_run *r, const char *folder, tc_tensor *outputs)
{
    r->network->build(nn_top(&r->model), r->inputs, outputs);
    for (int i = 0; i < NN_OUTPUTS && r->network->outputs[i]; i++) {
        mdl_add(r, folder, r->network->outputs[i], outputs[i]);
    }
}

/* Cross entropy where there are classes to hit; else how far the outputs go in given directions. */
static tc_tensor mdl_loss(mdl_run *r, const tc_tensor *outputs)
{
    if (tc_file_find(r->model.file, "in/target")) {
        tc_tensor target = tc_reshape(mdl_input(r, "in/target"), -1);
        return tc_cross_entropy(tc_reshape(outputs[0], tc_count(target), -1), target);
    }
    tc_tensor loss = tc_full(r->model.ctx, 0, TC_F32);
    for (int i = 0; i < NN_OUTPUTS && r->network->outputs[i]; i++) {
        char name[MDL_NAME];
        snprintf(name, sizeof(name), "in/cot_%s", r->network->outputs[i]);
        tc_tensor direction = mdl_input(r, name);
        loss = tc_add(loss, tc_mean(tc_mul(outputs[i], direction), TC_ALL, false));
    }
    return loss;
}

/* Gradients of all that learns, and of images, as values. */
static void mdl_gradients(mdl_run *r, tc_tensor loss)
{
    nn_model *model = &r->model;
    bool of_images = tc_dtype_of(r->inputs[0]) == TC_F32;
    tc_tensor *of = malloc((size_t)(model->n_state + 1) * 2 * sizeof(*of));
    int n = nn_learning(model, of);
    tc_tensor *grads = of + model->n_state + 1;
    of[n] = r->inputs[0];
    if (tc_grad(loss, of, n + of_images, grads)) {
        nn_fail(model, "%s", tc_error(model->ctx));
    }
    for (int i = 0, k = 0; i < model->n_state; i++) {
        if (model->state[i].kind <= NN_SCALE) {
            mdl_add(r, "grad", model->state[i].name, grads[k++]);
        }
    }
    if (of_images) {
        mdl_add(r, "grad_in", "x", grads[n]);
    }
    free(of);
}

static bool mdl_step(mdl_run *r)
{
    tc_tensor outputs[NN_OUTPUTS];
    int first = r->n_values;
    r->model.training = true;
    mdl_build(r, "train", outputs);
    tc_tensor loss = mdl_loss(r, outputs);
    mdl_add(r, "train", "loss", loss);
    mdl_gradients(r, loss);
    if (!mdl_evaluate(r, first)) {
        return false;
    }
    for (int i = 0; i < r->model.n_state; i++) {
        const nn_named *s = &r->model.state[i];
        if (s->kind > NN_SCALE && r->elsewhere) {
            mdl_add(r, "after", s->name, s->tensor); /* no effects: without a value */
        } else if (s->kind > NN_SCALE) {
            mdl_add(r, "after", s->name, s->tensor);
            mdl_value *v = &r->values[r->n_values - 1];
            v->data = mdl_numbers(r, v->name, s->tensor);
            v->n = tc_count(s->tensor);
        }
    }
    return true;
}

/* ---- the walk over the file ---- */

static mdl_value *mdl_find(mdl_run *r, const char *name)
{
    for (int i = 0; i < r->n_values; i++) {
        if (!strcmp(r->values[i].name, name)) {
            return &r->values[i];
        }
    }
    return NULL;
}

static void mdl_compare_all(mdl_run *r)
{
    const tc_array *a;
    for (int i = 0; (a = tc_file_array(r->model.file, i)) != NULL; i++) {
        bool given = !strncmp(a->name, "w/", 2) || !strncmp(a->name, "in/", 3);
        mdl_value *v = mdl_find(r, a->name);
        if (given) {
            continue;
        }
        if (v && v->data) {
            mdl_compare(r, v, tc_file_borrow(r->model.ctx, r->model.file, a->name));
        } else if (!v && r->train) {
            mdl_say(r, a->name, "the network makes none");
        } else {
            r->skipped++;
        }
    }
}

/* ---- where it begins to differ ---- */

/* Item k of those of this name in the list of layers that ran; NULL: none. */
static const nn_named *mdl_traced(const nn_model *model, const char *name, int k)
{
    for (int i = 0; i < model->n_trace; i++) {
        if (!strcmp(model->trace[i].name, name) && k-- == 0) {
            return &model->trace[i];
        }
    }
    return NULL;
}

/* Mean and root mean square of every layer, compared with the "trace" of the manifest. */
static void mdl_find_layer(mdl_run *r)
{
    tc_tensor outputs[NN_OUTPUTS];
    int first = r->n_values, i = first;
    r->model.training = false;
    r->model.traces = true;
    r->model.n_effects = 0;
    r->network->build(nn_top(&r->model), r->inputs, outputs);
    for (int k = 0; k < r->model.n_trace; k++) {
        tc_tensor y = r->model.trace[k].tensor;
        mdl_add(r, "mean", r->model.trace[k].name, tc_mean(y, TC_ALL, false));
        mdl_add(r, "rms", r->model.trace[k].name, tc_sqrt(tc_mean(tc_square(y), TC_ALL, false)));
    }
    if (!mdl_evaluate(r, first)) {
        return;
    }
    const json *trace = json_get(r->meta, "trace");
    for (const json *t = trace ? trace->first : NULL; t && !*r->first; t = t->next) {
        const json *shape = t->first->next->next, *mean = shape->next, *rms = mean->next;
        const nn_named *layer = mdl_traced(&r->model, t->first->string, 0);
        if (!layer) {
            continue; /* a part that the library here has no layer for */
        }
        i = first + 2 * (int)(layer - r->model.trace);
        double bound = 1e-4 * rms->number + 1e-7;
        if (fabs(*r->values[i].data - mean->number) > bound ||
            fabs(*r->values[i + 1].data - rms->number) > bound) {
            snprintf(r->first, sizeof(r->first), "%s", t->first->string);
        }
    }
}

/* Going backwards the last layer comes first. */
static void mdl_find_gradient(mdl_run *r)
{
    for (int i = r->n_values - 1; i >= 0 && !*r->first; i--) {
        const mdl_value *v = &r->values[i];
        if (v->failed && !strncmp(v->name, "grad/", 5)) {
            snprintf(r->first, sizeof(r->first), "%s, going backwards", v->name + 5);
        }
    }
}

static void mdl_locate(mdl_run *r)
{
    bool forward = false, backward = false;
    for (int i = 0; i < r->n_values; i++) {
        forward = forward || (r->values[i].failed && !strncmp(r->values[i].name, "eval/", 5));
        backward = backward || r->values[i].failed;
    }
    if (forward) {
        mdl_find_layer(r);
    } else if (backward) {
        mdl_find_gradient(r);
    }
}

/* ---- all of it ---- */

/* The numbers of a configuration as settings; the caller frees the text. */
static char *mdl_settings(const json *config)
{
    char *text = calloc(1, (size_t)(config ? config->text_bytes : 0) + 64), *at = text;
    for (const json *v = config ? config->first : NULL; text && v; v = v->next) {
        at += sprintf(at, "%s=%.*s ", v->key, (int)v->text_bytes, v->text);
    }
    return text;
}

static void mdl_compute(mdl_run *r)
{
    tc_tensor outputs[NN_OUTPUTS];
    for (int i = 0; i < NN_INPUTS && r->network->inputs[i]; i++) {
        char name[MDL_NAME];
        snprintf(name, sizeof(name), "in/%s", r->network->inputs[i]);
        r->inputs[i] = mdl_input(r, name);
    }
    mdl_build(r, "eval", outputs);
    if (mdl_evaluate(r, 0) && (!r->train || mdl_step(r))) {
        mdl_compare_all(r);
        mdl_locate(r);
    }
}

/* Compares; what r counts says how it went. */
static void mdl_replay(mdl_run *r, const char *path)
{
    tc_ctx *ctx;
    tc_options options = {.backend = r->backend,
                          .fallback = TC_FALLBACK_REFUSE,
                          .cc_timeout_s = 900};
    r->network = nn_find(r->name);
    if (!r->network || !r->meta || tc_ctx_make(&ctx, &options)) {
        mdl_say(r, "", "there is no such network");
        return;
    }
    char *settings = mdl_settings(json_get(r->meta, "config"));
    r->model = (nn_model){.ctx = ctx,
                          .prefix = "w/",
                          .settings = settings,
                          .learns = r->train,
                          .preset = r->network->preset,
                          .ignores = true};
    if (tc_file_open(ctx, path, &r->model.file)) {
        mdl_say(r, path, "%s", tc_error(ctx));
    } else {
        mdl_compute(r);
    }
    for (int i = 0; i < r->n_in; i++) {
        free(r->in[i].data);
    }
    for (int i = 0; i < r->n_values; i++) {
        free(r->values[i].data);
    }
    free(r->values);
    free(settings);
    nn_free(&r->model);
    tc_file_close(r->model.file);
    tc_ctx_free(ctx);
}

#endif
