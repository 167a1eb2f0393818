/* nn.h - the layers of examples/models, on the public calls of tc.
 *
 * A network is a C function from tensors to tensors. A layer makes its parameters where it is
 * called first, under the names that they have in PyTorch ("layer1.0.conv1.weight"), and finds them
 * by these names where it is called again: one function serves inference and training, and files of
 * torchvision, timm and transformers load as they are. Sizes come from the input, so a network
 * takes batches and images of any size.
 *
 *     nn_model model = {.ctx = ctx, .file = file};            // the file's weights, mapped
 *     tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 3, 224, 224), y;
 *     resnet(nn_top(&model), &x, &y);
 *
 * Mistakes are poisoned tensors, as everywhere in tc; nn_error tells the first one. */
#ifndef NN_H
#define NN_H

#include "tc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define NN_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define NN_PRINTF
#endif

enum { NN_NAME = 128, NN_RANK = 8, NN_SETTINGS = 32 };

/* Gradients are taken for weights, biases and scales; the others are buffers. */
typedef enum nn_kind { NN_WEIGHT, NN_BIAS, NN_SCALE, NN_MEAN, NN_VARIANCE, NN_COUNT } nn_kind;

typedef struct nn_named {
    char name[NN_NAME];
    nn_kind kind;
    tc_tensor tensor;
} nn_named;

/* A network while it is written down. The caller sets the first part, zero being a good default,
 * and ends the lists of the second by nn_free. */
typedef struct nn_model {
    tc_ctx *ctx;
    tc_file *file;        /* where parameters come from; NULL: random numbers */
    const char *prefix;   /* of their names there, such as "model."; NULL: none */
    const char *settings; /* "depth=4 layers=3,4,6,3" (nn_setting); NULL: the network's own */
    bool ignores;         /* words of the settings that the network does not know: no mistakes */
    const char *preset;   /* of the network itself, for those that `settings` does not have */
    tc_dtype dtype;       /* of random parameters; 0: f32. parameters of a file keep its dtype */
    bool learns;          /* parameters have memory of their own, which a step may change */
    bool training;        /* the mode of the layers called from now on */
    bool folds;           /* norms behind convolutions are part of their weights (nn_conv_norm) */
    tc_keys *dropout;     /* NULL: nothing is dropped in training either */
    bool traces;          /* outputs of the layers called from now on are listed */
    /* makes a parameter or buffer; NULL: from the file, or at random */
    tc_tensor (*make)(struct nn_model *model, const char *name, nn_kind kind, int rank,
                      const int64_t *sizes);

    nn_named *state, *trace; /* parameters and buffers; outputs of layers in the order of calls */
    int n_state, n_trace;
    tc_tensor *effects; /* of a training run, for tc_compile_fn: running statistics */
    int n_effects;
    const char *asked[NN_SETTINGS]; /* settings, by the network */
    int n_asked;
    uint32_t random;
    void *drawn; /* random numbers on their way into a parameter, and room for them */
    size_t n_drawn;
    char error[384];
} nn_model;

/* A place in a network, and so the beginning of names; passed by value. */
typedef struct nn {
    nn_model *model;
    char path[NN_NAME];
} nn;

static inline nn nn_top(nn_model *model)
{
    return (nn){model, ""};
}

NN_PRINTF static inline tc_tensor nn_fail(nn_model *model, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (!*model->error) {
        vsnprintf(model->error, sizeof(model->error), format, list);
    }
    va_end(list);
    return TC_NONE;
}

/* nn_in(m, "layer%d.%d", 1, 0): a place in m; by the empty name m itself. */
NN_PRINTF static inline nn nn_in(nn m, const char *name, ...)
{
    char last[NN_NAME];
    size_t n = strlen(m.path);
    va_list list;
    va_start(list, name);
    vsnprintf(last, sizeof(last), name, list);
    va_end(list);
    const char *point = n && *last ? "." : "";
    if (snprintf(m.path + n, sizeof(m.path) - n, "%s%s", point, last) >= (int)(NN_NAME - n)) {
        nn_fail(m.model, "a name is too long: %s", m.path);
    }
    return m;
}

/* The first mistake; "": none so far. */
static inline const char *nn_error(const nn_model *model)
{
    return *model->error ? model->error : tc_error(model->ctx);
}

/* Makes room for one more behind n items; false: no memory. */
static inline bool nn_grow(nn_model *model, void *items, int n, size_t bytes)
{
    void **at = (void **)items;
    void *grown = n & (n - 1) ? *at : realloc(*at, (size_t)(n ? 2 * n : 1) * bytes);
    *at = grown ? grown : *at;
    if (!grown) {
        nn_fail(model, "out of memory");
    }
    return grown != NULL;
}

/* The room for random numbers (nn_room). */
static inline void nn_free_drawn(nn_model *model)
{
    free(model->drawn);
    model->drawn = NULL;
    model->n_drawn = 0;
}

static inline void nn_free(nn_model *model)
{
    nn_free_drawn(model);
    free(model->state);
    free(model->trace);
    free(model->effects);
    model->state = model->trace = NULL;
    model->effects = NULL;
    model->n_state = model->n_trace = model->n_effects = 0;
}

/* ---- settings: what a network is told by name ---- */

/* Up to n numbers of "name=1,2,3" in a text of such words; how many there are. */
static inline int nn_numbers(const char *words, const char *name, double *numbers, int n)
{
    size_t length = strlen(name);
    while (words && *words) {
        if (!strncmp(words, name, length) && words[length] == '=') {
            int found = 0;
            char *p = (char *)(uintptr_t)words + length;
            while (found < n && (*p == '=' || *p == ',')) {
                numbers[found++] = strtod(p + 1, &p);
            }
            return found;
        }
        words += strcspn(words, " ");
        words += strspn(words, " ");
    }
    return 0;
}

/* name: of a static string */
static inline void nn_setting_list(nn m, const char *name, double *numbers, int n)
{
    bool known = false;
    for (int i = 0; i < m.model->n_asked; i++) {
        known = known || !strcmp(m.model->asked[i], name);
    }
    if (!known && m.model->n_asked < NN_SETTINGS) {
        m.model->asked[m.model->n_asked++] = name;
    }
    if (!nn_numbers(m.model->settings, name, numbers, n)) {
        nn_numbers(m.model->preset, name, numbers, n);
    }
}

/* The number that the network was given by this name; else the usual one. */
static inline double nn_setting(nn m, const char *name, double usual)
{
    nn_setting_list(m, name, &usual, 1);
    return usual;
}

/* A word of the settings, up to its end: what is wrong with it, or NULL. */
static inline const char *nn_wrong_setting(const nn_model *model, const char *word)
{
    size_t n = strcspn(word, "= ");
    char *end;
    for (int i = 0; i < model->n_asked; i++) {
        if (strlen(model->asked[i]) == n && !strncmp(model->asked[i], word, n)) {
            strtod(word + n + (word[n] == '='), &end);
            return word[n] == '=' && end > word + n + 1 ? NULL : "has no number";
        }
    }
    return "is none of this network's";
}

/* The output of a whole network, which has asked for all its settings: nothing where others are
 * given. */
static inline tc_tensor nn_end(nn m, tc_tensor y)
{
    const char *word = m.model->ignores || *m.path ? NULL : m.model->settings;
    nn_free_drawn(m.model);
    while (word && *word) {
        int n = (int)strcspn(word, " ");
        const char *wrong = n ? nn_wrong_setting(m.model, word) : NULL;
        if (wrong) {
            return nn_fail(m.model, "the setting '%.*s' %s", n < 60 ? n : 60, word, wrong);
        }
        word += n;
        word += strspn(word, " ");
    }
    return y;
}

/* ---- parameters ---- */

static inline void nn_shape_text(char text[96], int rank, const int64_t *sizes)
{
    int n = snprintf(text, 96, "[");
    for (int i = 0; i < rank && n < 70; i++) {
        n += snprintf(text + n, 24, "%s%lld", i ? ", " : "", (long long)sizes[i]);
    }
    snprintf(text + n, 2, "]");
}

/* An array of the file: mapped, or, where the model learns, a copy of its own. */
static inline tc_tensor nn_from_file(nn_model *model, const char *name, int rank,
                                     const int64_t *sizes)
{
    char full[2 * NN_NAME], has[96], wanted[96];
    snprintf(full, sizeof(full), "%s%s", model->prefix ? model->prefix : "", name);
    const tc_array *a = tc_file_find(model->file, full);
    if (!a) {
        return nn_fail(model, "the file has no %.200s", full);
    }
    if (a->rank != rank || memcmp(a->sizes, sizes, (size_t)rank * sizeof(*sizes))) {
        nn_shape_text(has, a->rank, a->sizes);
        nn_shape_text(wanted, rank, sizes);
        return nn_fail(model, "%.150s is %s, the file has %s", full, wanted, has);
    }
    tc_tensor leaf = tc_file_borrow(model->ctx, model->file, full);
    return model->learns ? tc_param_from(leaf) : leaf;
}

/* The next of an endless row of numbers from -1 to 1. */
static inline float nn_random(nn_model *model)
{
    model->random = model->random * 1664525u + 1013904223u;
    return (float)(model->random >> 8) / 8388608.0f - 1;
}

/* Element i of memory of f32 or bf16, rounded to nearest. */
static inline void nn_store(void *data, tc_dtype dtype, int64_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (dtype == TC_BF16) {
        ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    } else {
        ((float *)data)[i] = value;
    }
}

/* Memory for random numbers, one for all parameters until the network ends: what each takes and
 * gives back would be holes between them. */
static inline void *nn_room(nn_model *model, size_t bytes)
{
    if (bytes > model->n_drawn) {
        free(model->drawn);
        model->drawn = malloc(bytes);
        model->n_drawn = model->drawn ? bytes : 0;
    }
    return model->drawn;
}

/* As PyTorch begins: weights are within 1 / sqrt(inputs of a unit). */
static inline tc_tensor nn_from_nothing(nn_model *model, nn_kind kind, int rank,
                                        const int64_t *sizes)
{
    tc_dtype dtype = kind == NN_COUNT ? TC_I64 : model->dtype ? model->dtype : TC_F32;
    int64_t list[NN_RANK + 1] = {dtype}, n = 1;
    for (int i = 0; i < rank; i++) {
        list[i + 1] = sizes[i];
        n *= sizes[i];
    }
    if (kind == NN_BIAS || kind == NN_MEAN || kind == NN_COUNT) {
        return tc_param_at(model->ctx, NULL, rank + 1, list, TC_HERE); /* zeros */
    }
    void *data = nn_room(model, (size_t)n * sizeof(float) + 1);
    if (!data) {
        return nn_fail(model, "out of memory");
    }
    float bound = kind == NN_WEIGHT ? 1 / sqrtf((float)n / (float)sizes[0]) : 0;
    for (int64_t i = 0; i < n; i++) {
        nn_store(data, dtype, i, kind == NN_WEIGHT ? bound * nn_random(model) : 1);
    }
    return tc_param_at(model->ctx, data, rank + 1, list, TC_HERE);
}

static inline tc_tensor nn_make(nn_model *model, const char *name, nn_kind kind, int rank,
                                const int64_t *sizes)
{
    tc_tensor made;
    if (model->make) {
        return model->make(model, name, kind, rank, sizes);
    }
    made = model->file ? nn_from_file(model, name, rank, sizes)
                       : nn_from_nothing(model, kind, rank, sizes);
    return model->learns || !model->file ? tc_named(made, name) : made; /* for tc_save */
}

/* The parameter m.name, made if there is none yet. */
static inline tc_tensor nn_get(nn m, const char *name, nn_kind kind, int rank, const int64_t *sizes)
{
    nn_model *model = m.model;
    nn_named one = {"", kind, TC_NONE};
    snprintf(one.name, sizeof(one.name), "%s", nn_in(m, "%s", name).path);
    for (int i = 0; i < model->n_state; i++) {
        if (!strcmp(model->state[i].name, one.name)) {
            return model->state[i].tensor;
        }
    }
    if (!nn_grow(model, &model->state, model->n_state, sizeof(one))) {
        return TC_NONE;
    }
    one.tensor = nn_make(model, one.name, kind, rank, sizes);
    model->state[model->n_state++] = one;
    return one.tensor;
}

/* nn_param(m, "weight", NN_WEIGHT, out, in) */
#define nn_param(m, name, kind, ...)                                                               \
    nn_get((m), (name), (kind), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),         \
           (const int64_t[]){__VA_ARGS__})

/* The parameters that learn, for tc_grad and the optimizers: up to n_state; how many. */
static inline int nn_learning(const nn_model *model, tc_tensor *params)
{
    int n = 0;
    for (int i = 0; i < model->n_state; i++) {
        if (model->state[i].kind <= NN_SCALE) {
            params[n++] = model->state[i].tensor;
        }
    }
    return n;
}

/* ---- layers ---- */

/* The output of the layer m, which is listed where that is wanted. */
static inline tc_tensor nn_out(nn m, tc_tensor y)
{
    nn_model *model = m.model;
    if (model->traces && nn_grow(model, &model->trace, model->n_trace, sizeof(*model->trace))) {
        nn_named *one = &model->trace[model->n_trace++];
        snprintf(one->name, sizeof(one->name), "%s", m.path);
        one->tensor = y;
    }
    return y;
}

/* A layer m.name: its nodes are of that region until nn_end_layer, which is its nn_out. */
static inline nn nn_layer(nn m, const char *name)
{
    nn at = nn_in(m, "%s", name);
    tc_region_begin(m.model->ctx, *at.path ? at.path : "layer");
    return at;
}

static inline tc_tensor nn_end_layer(nn m, tc_tensor y)
{
    tc_region_end(m.model->ctx);
    return nn_out(m, y);
}

/* x [..., in] times the transposed weight [out, in] */
static inline tc_tensor nn_linear(nn m, const char *name, tc_tensor x, int64_t out, bool bias)
{
    nn at = nn_layer(m, name);
    tc_tensor w = nn_param(at, "weight", NN_WEIGHT, out, tc_size(x, -1));
    tc_tensor y = tc_matmul(x, tc_transpose(w, 0, 1));
    return nn_end_layer(at, bias ? tc_add(y, nn_param(at, "bias", NN_BIAS, out)) : y);
}

typedef struct nn_conv {
    int64_t stride, padding, groups; /* groups, stride 0: 1 */
    bool bias;
} nn_conv;

/* nn_conv2d(m, "conv1", x, 64, 7, .stride = 2, .padding = 3) of x [N, C, H, W] */
#define nn_conv2d(m, name, x, out, kernel, ...)                                                    \
    nn_conv2d_by((m), (name), (x), (out), (kernel), (nn_conv){__VA_ARGS__})
static inline tc_tensor nn_conv2d_by(nn m, const char *name, tc_tensor x, int64_t out,
                                     int64_t kernel, nn_conv o)
{
    nn at = nn_layer(m, name);
    int64_t in = tc_size(x, 1) / (o.groups ? o.groups : 1);
    tc_tensor w = nn_param(at, "weight", NN_WEIGHT, out, in, kernel, kernel);
    tc_tensor b = o.bias ? nn_param(at, "bias", NN_BIAS, out) : TC_NONE;
    return nn_end_layer(at, tc_conv2d(x, w, b,
                                      &(tc_conv){.stride = {o.stride, o.stride},
                                                 .padding = {o.padding, o.padding},
                                                 .groups = o.groups}));
}

/* A running statistic moves towards the batch's by the momentum. */
static inline void nn_follow(nn_model *model, tc_tensor running, tc_tensor value)
{
    if (nn_grow(model, &model->effects, model->n_effects, sizeof(*model->effects))) {
        tc_tensor rounded = tc_cast(value, tc_dtype_of(running));
        model->effects[model->n_effects++] = tc_assign(running, rounded);
    }
}

typedef struct nn_norm {
    tc_tensor w, b, mean, var, count;
} nn_norm;

static inline nn_norm nn_norm_of(nn at, int64_t channels)
{
    return (nn_norm){nn_param(at, "weight", NN_SCALE, channels),
                     nn_param(at, "bias", NN_BIAS, channels),
                     nn_param(at, "running_mean", NN_MEAN, channels),
                     nn_param(at, "running_var", NN_VARIANCE, channels),
                     nn_get(at, "num_batches_tracked", NN_COUNT, 0, NULL)};
}

static inline tc_tensor nn_batch_norm(nn m, const char *name, tc_tensor x, double momentum)
{
    nn at = nn_layer(m, name);
    nn_norm n = nn_norm_of(at, tc_size(x, 1));
    if (m.model->training) {
        tc_tensor batch_mean, batch_var;
        tc_var_mean(x, TC_AXES(0, 2, 3), 1, false, &batch_var, &batch_mean);
        tc_tensor kept = tc_mul(n.mean, 1 - momentum);
        nn_follow(m.model, n.mean, tc_add(kept, tc_mul(batch_mean, momentum)));
        kept = tc_mul(n.var, 1 - momentum);
        nn_follow(m.model, n.var, tc_add(kept, tc_mul(batch_var, momentum)));
        nn_follow(m.model, n.count, tc_add(n.count, 1));
    }
    return nn_end_layer(at, tc_batch_norm(x, n.mean, n.var, n.w, n.b, m.model->training, 1e-5));
}

/* A convolution without a bias at one place, and the norm of its output at another. Where the model
 * folds, and does not train, the norm is in the weights and a bias: these follow from parameters
 * alone, so a program computes them once, and again when one of those changes. */
static inline tc_tensor nn_conv_norm(nn conv, nn norm, tc_tensor x, int64_t out, int64_t kernel,
                                     double momentum, nn_conv o)
{
    if (!conv.model->folds || conv.model->training) {
        return nn_batch_norm(norm, "", nn_conv2d_by(conv, "", x, out, kernel, o), momentum);
    }
    tc_region_begin(conv.model->ctx, norm.path);
    int64_t in = tc_size(x, 1) / (o.groups ? o.groups : 1);
    tc_tensor w = nn_param(conv, "weight", NN_WEIGHT, out, in, kernel, kernel);
    nn_norm n = nn_norm_of(norm, out);
    tc_tensor scale = tc_mul(tc_cast(n.w, TC_F32), tc_rsqrt(tc_add(tc_cast(n.var, TC_F32), 1e-5)));
    tc_tensor shift = tc_sub(tc_cast(n.b, TC_F32), tc_mul(tc_cast(n.mean, TC_F32), scale));
    tc_tensor folded = tc_mul(tc_cast(w, TC_F32), tc_reshape(scale, out, 1, 1, 1));
    return nn_end_layer(norm, tc_conv2d(x, tc_cast(folded, tc_dtype_of(w)),
                                        tc_cast(shift, tc_dtype_of(w)),
                                        &(tc_conv){.stride = {o.stride, o.stride},
                                                   .padding = {o.padding, o.padding},
                                                   .groups = o.groups}));
}

/* Over the last axis, as the two below. */
static inline tc_tensor nn_layer_norm(nn m, const char *name, tc_tensor x, double eps)
{
    nn at = nn_layer(m, name);
    tc_tensor w = nn_param(at, "weight", NN_SCALE, tc_size(x, -1));
    tc_tensor b = nn_param(at, "bias", NN_BIAS, tc_size(x, -1));
    return nn_end_layer(at, tc_layer_norm(x, TC_AXES(-1), w, b, eps));
}

static inline tc_tensor nn_rms_norm(nn m, const char *name, tc_tensor x, double eps)
{
    nn at = nn_layer(m, name);
    tc_tensor w = nn_param(at, "weight", NN_SCALE, tc_size(x, -1));
    return nn_end_layer(at, tc_rms_norm(x, TC_AXES(-1), w, eps));
}

/* Rows of a table: ids [N, T] give [N, T, width]. */
static inline tc_tensor nn_embedding(nn m, const char *name, tc_tensor ids, int64_t rows,
                                     int64_t width)
{
    nn at = nn_layer(m, name);
    tc_tensor w = nn_param(at, "weight", NN_WEIGHT, rows, width);
    tc_tensor y = tc_index_select(w, 0, tc_reshape(ids, -1));
    return nn_end_layer(at, tc_reshape(y, tc_size(ids, 0), tc_size(ids, 1), width));
}

static inline tc_tensor nn_dropout(nn m, tc_tensor x, double p)
{
    bool drops = m.model->training && m.model->dropout;
    return drops ? tc_dropout(x, p, tc_next_key(m.model->dropout)) : x;
}

/* Attention that drops weights with probability p in training. mask: of bools, true where a key is
 * seen, or TC_NONE; causal: no key behind its query, where there are as many of both. */
static inline tc_tensor nn_attention(nn m, tc_tensor q, tc_tensor k, tc_tensor v, tc_tensor mask,
                                     bool causal, double p)
{
    tc_ctx *ctx = m.model->ctx;
    int64_t length = tc_size(q, 2);
    if (!m.model->training || !m.model->dropout || !(p > 0)) {
        return tc_scaled_dot_product_attention(q, k, v, mask, causal, 0);
    }
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, 2, 3)), 1 / sqrt((double)tc_size(q, 3)));
    if (causal) {
        tc_tensor place = tc_arange(ctx, 0, length, 1, TC_I64);
        mask = tc_le(place, tc_unsqueeze(place, 1));
    }
    bool masks = mask.ctx != NULL;
    scores = masks ? tc_where(mask, scores, -INFINITY) : scores;
    return tc_matmul(nn_dropout(m, tc_softmax(scores, -1), p), v);
}

/* [N, T, heads * width] as [N, heads, T, width], and back */
static inline tc_tensor nn_split_heads(tc_tensor x, int64_t heads)
{
    return tc_permute(tc_reshape(x, tc_size(x, 0), tc_size(x, 1), heads, -1), 0, 2, 1, 3);
}

static inline tc_tensor nn_join_heads(tc_tensor x)
{
    tc_tensor rows = tc_permute(x, 0, 2, 1, 3);
    return tc_reshape(rows, tc_size(rows, 0), tc_size(rows, 1), tc_size(x, 1) * tc_size(x, 3));
}

#endif
