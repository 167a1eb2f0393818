/* tests/networks.h - the networks of examples/models, shrunken, with random weights: for tests that
 * compare an engine with tc's interpreter.
 *
 * In: a row of net_cases. Out: a graph of the outputs or, of a training step, of the loss and the
 * gradients of all parameters, with the values of its inputs. net_reference interprets the same
 * network in f64, so that the error of an engine is held against the error of tc's own f32.
 * tests/model_case.h compares networks with what PyTorch computed. */
#ifndef TC_TEST_NETWORKS_H
#define TC_TEST_NETWORKS_H

#include "../examples/models/models.h"
#include "tc_test.h"

typedef struct net_case {
    const char *name, *settings;
    int64_t batch, size; /* of images: their side; of texts: their length */
} net_case;

#define NET_BERT "vocab_size=100 max_position_embeddings=32 num_hidden_layers=2 "
#define NET_LLAMA                                                                                  \
    "vocab_size=100 hidden_size=48 intermediate_size=96 num_hidden_layers=2 "                      \
    "num_attention_heads=4 num_key_value_heads=2"
static const net_case net_cases[] = {
    {"resnet18", "width_divisor=8 classes=10", 4, 64},
    {"resnet50", "width_divisor=16 classes=10", 4, 64},
    {"resnext50_32x4d", "width_divisor=16 classes=10", 4, 64},
    {"resnext101_32x8d", "width_divisor=32 classes=10", 4, 64},
    {"alexnet", "width_divisor=16 classes=10", 2, 64},
    {"vgg16", "width_divisor=32 classes=10", 2, 32},
    {"squeezenet1_1", "width_divisor=4 classes=10", 2, 64},
    {"mobilenet_v2", "width_mult=0.25 classes=10", 4, 64},
    {"mnasnet1_0", "alpha=0.1 classes=10", 4, 64},
    {"vit_tiny_patch16_224", "patch_size=8 embed_dim=48 depth=3 num_heads=3 num_classes=10", 2, 32},
    {"vit_base_patch16_224", "patch_size=8 embed_dim=96 depth=3 num_heads=12 num_classes=10", 2,
     32},
    {"bert_base", NET_BERT "hidden_size=48 num_attention_heads=4 intermediate_size=96", 3, 12},
    {"bert_small", NET_BERT "hidden_size=32 num_attention_heads=8 intermediate_size=64", 2, 9},
    {"bert_minilm_l6", NET_BERT "hidden_size=36 num_attention_heads=12 intermediate_size=72", 2,
     16},
    {"gpt2", "vocab_size=100 n_positions=32 n_embd=48 n_layer=2 n_head=4", 2, 12},
    {"llama", NET_LLAMA, 2, 12},
};
enum { NET_CASES = (int)(sizeof(net_cases) / sizeof(*net_cases)), NET_PARAMS = 1024 };

typedef struct net {
    const net_case *c;
    nn_model model;
    tc_tensor in[NN_INPUTS], out[NET_PARAMS];
    tc_buf in_bufs[NN_INPUTS];
    int n_in, n_out;
} net;

static const net_case *net_find(const char *name)
{
    int i = 0;
    while (i < NET_CASES && strcmp(net_cases[i].name, name)) {
        i++;
    }
    REQUIRE(i < NET_CASES);
    return &net_cases[i];
}

/* Images from -1 to 1; words below 100, types 0 or 1, and a mask whose last words are padding. */
static void net_add_input(net *n, const char *name, bool images)
{
    const net_case *c = n->c;
    int64_t list[5] = {images ? TC_F32 : TC_I64, c->batch, images ? 3 : c->size, c->size, c->size};
    tc_tensor t = tc_input_at(n->model.ctx, name, images ? 5 : 3, list, TC_HERE);
    nn_model numbers = {.random = 7};
    char *data = malloc((size_t)tc_nbytes(t));
    for (int64_t i = 0; i < tc_count(t); i++) {
        float x = nn_random(&numbers);
        if (images) {
            ((float *)(void *)data)[i] = x;
        } else {
            ((int64_t *)(void *)data)[i] = strstr(name, "type")   ? x > 0
                                           : strstr(name, "mask") ? i % c->size < c->size - 2
                                                                  : (int64_t)((x + 1) * 49);
        }
    }
    n->in_bufs[n->n_in] = (tc_buf){.data = data, .n = tc_nbytes(t), .dtype = -1};
    n->in[n->n_in++] = t;
}

/* The loss is the mean square of the outputs less a half; its gradients follow it. */
static void net_add_step(net *n, const tc_tensor *y, int n_y)
{
    tc_tensor params[NET_PARAMS], loss = tc_full(n->model.ctx, 0, TC_F32);
    for (int i = 0; i < n_y; i++) {
        loss = tc_add(loss, tc_mean(tc_square(tc_sub(y[i], 0.5)), TC_ALL, false));
    }
    REQUIRE(n->model.n_state < NET_PARAMS);
    int count = nn_learning(&n->model, params);
    n->out[0] = loss;
    CHECK_MSG(tc_grad(loss, params, count, n->out + 1) == TC_OK, "%s", tc_error(n->model.ctx));
    n->n_out = 1 + count;
}

/* nn_model.make: biases of 3 keep nearly all values off the corners of relu and relu6, which would
 * make gradients differ by percents where rounding moves a value across. */
static tc_tensor net_param(nn_model *model, nn_kind kind, int rank, const int64_t *sizes,
                           tc_dtype dtype)
{
    tc_tensor first = nn_from_nothing(model, kind, rank, sizes);
    int64_t list[NN_RANK + 1] = {dtype}, n = tc_count(first);
    double *values = malloc((size_t)n * sizeof(double) + 1);
    memcpy(list + 1, sizes, sizeof(*sizes) * (size_t)rank);
    CHECK_EQ_INT(tc_read(tc_cast(first, TC_F64), values, n), TC_OK);
    for (int64_t i = 0; i < n; i++) {
        values[i] += kind == NN_BIAS ? 3 : 0;
        if (dtype == TC_F32) {
            ((float *)(void *)values)[i] = (float)values[i];
        }
    }
    first = kind == NN_COUNT ? first : tc_param_at(model->ctx, values, rank + 1, list, TC_HERE);
    free(values);
    return first;
}

static tc_tensor net_param_f32(nn_model *model, const char *name, nn_kind kind, int rank,
                               const int64_t *sizes)
{
    return tc_named(net_param(model, kind, rank, sizes, TC_F32), name);
}

/* The same number in f64. */
static tc_tensor net_param_f64(nn_model *model, const char *name, nn_kind kind, int rank,
                               const int64_t *sizes)
{
    return tc_named(net_param(model, kind, rank, sizes, TC_F64), name);
}

/* wide: the network in f64, whose inputs and outputs are f32 all the same. */
static net *net_make(const char *name, bool train, int seed, bool wide)
{
    net *n = calloc(1, sizeof(*n));
    const nn_network *network = nn_find(name);
    tc_tensor x[NN_INPUTS] = {TC_NONE}, y[NN_OUTPUTS];
    tc_options o = {.backend = "interp", .threads = 2};
    REQUIRE(n && network);
    n->c = net_find(name);
    n->model = (nn_model){.settings = n->c->settings,
                          .preset = network->preset,
                          .learns = true,
                          .training = train,
                          .make = wide ? net_param_f64 : net_param_f32,
                          .random = (uint32_t)seed};
    REQUIRE(tc_ctx_make(&n->model.ctx, &o) == TC_OK);
    for (int i = 0; i < NN_INPUTS && network->inputs[i]; i++) {
        net_add_input(n, network->inputs[i], !strcmp(network->inputs[0], "x"));
        x[i] = wide && tc_dtype_of(n->in[i]) == TC_F32 ? tc_cast(n->in[i], TC_F64) : n->in[i];
    }
    network->build(nn_top(&n->model), x, y);
    while (n->n_out < NN_OUTPUTS && network->outputs[n->n_out]) {
        n->out[n->n_out] = y[n->n_out];
        n->n_out++;
    }
    if (train) {
        net_add_step(n, y, n->n_out);
    }
    for (int i = 0; i < n->n_out; i++) {
        n->out[i] = tc_cast(n->out[i], TC_F32);
    }
    CHECK_MSG(!*nn_error(&n->model), "%s: %s", name, nn_error(&n->model));
    REQUIRE(!*nn_error(&n->model));
    return n;
}

static void net_free(net *n)
{
    for (int i = 0; i < n->n_in; i++) {
        free(n->in_bufs[i].data);
    }
    tc_ctx *ctx = n->model.ctx;
    nn_free(&n->model);
    tc_ctx_free(ctx);
    free(n);
}

static void net_free_values(net *n, float **values)
{
    for (int i = 0; i < n->n_out; i++) {
        free(values[i]);
    }
    free(values);
}

/* The outputs by the backend, all f32; NULL: it refuses, and the text says why. */
static float **net_run(net *n, const char *backend, char text[300])
{
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE, .threads = 2};
    tc_buf bufs[NET_PARAMS];
    tc_program *f = NULL;
    float **values = calloc((size_t)n->n_out + 1, sizeof(*values));
    for (int i = 0; i < n->n_out; i++) {
        values[i] = malloc((size_t)tc_nbytes(n->out[i]) + 1);
        bufs[i] = (tc_buf){.data = values[i], .n = tc_nbytes(n->out[i]), .dtype = -1};
    }
    bool works = !tc_compile_fn(TC_TENSORS_N(n->in, n->n_in), TC_TENSORS_N(n->out, n->n_out), &o,
                                &f) &&
                 !tc_run(f, TC_BUFS_N(n->in_bufs, n->n_in), TC_BUFS_N(bufs, n->n_out));
    snprintf(text, 300, "%s", works ? "" : f ? tc_program_error(f) : tc_error(n->model.ctx));
    tc_program_free(f);
    if (!works) {
        net_free_values(n, values);
    }
    return works ? values : NULL;
}

static double net_largest(const net *n, int i, const float *values)
{
    double largest = 0;
    for (int64_t k = 0; k < tc_count(n->out[i]); k++) {
        largest = fmax(largest, fabs((double)values[k]));
    }
    return largest;
}

/* The largest difference of output i over `unit`; INFINITY of a NaN. */
static double net_far(const net *n, int i, const float *got, const float *want, double unit)
{
    double most = 0;
    for (int64_t k = 0; k < tc_count(n->out[i]); k++) {
        double off = fabs((double)got[k] - (double)want[k]);
        most = off <= most ? most : off == off ? off : (double)INFINITY;
    }
    return most == 0 ? 0 : most / fmax(unit, 1e-30);
}

/* The output that is farthest from the reference: *worst is its difference over its largest
 * element, or over a hundredth of the largest of all outputs, which bounds gradients that are 0
 * except for rounding. */
static int net_farthest(const net *n, float *const *got, float *const *want, bool train,
                        double *worst)
{
    double all = 0;
    int at = 0;
    *worst = -1;
    for (int i = train; i < n->n_out; i++) { /* the loss is in other units */
        all = fmax(all, net_largest(n, i, want[i]));
    }
    for (int i = 0; i < n->n_out; i++) {
        double own = net_largest(n, i, want[i]);
        double far = net_far(n, i, got[i], want[i], fmax(own, train && i ? all / 100 : 0));
        CHECK_MSG(own > 0, "%s: output %d is all zeros", n->c->name, i);
        at = far > *worst ? i : at;
        *worst = fmax(*worst, far);
    }
    return at;
}

/* The outputs by another engine; NULL: it refuses, and the text says why. */
typedef float **(*net_runner)(net *n, const char *by, char text[300]);

static float **net_outputs(const net_case *c, bool train, int seed, bool wide)
{
    char text[300];
    net *n = net_make(c->name, train, seed, wide);
    float **values = net_run(n, "interp", text);
    CHECK_MSG(values != NULL, "%s: %s", c->name, text);
    REQUIRE(values != NULL);
    net_free(n);
    return values;
}

/* Whether the engine is as near to f64 as tc's own f32, within a factor of 8. */
static bool net_agrees(const net_case *c, bool train, int seed, const char *by, net_runner run)
{
    char text[300];
    net *n = net_make(c->name, train, seed, false);
    float **got = run(n, by, text), **want, **own;
    double far, error;
    CHECK_MSG(got != NULL, "%s%s by %s: %s", c->name, train ? ", training" : "", by, text);
    if (!got) {
        net_free(n);
        return true; /* it is told */
    }
    want = net_outputs(c, train, seed, true);
    own = net_outputs(c, train, seed, false);
    net_farthest(n, own, want, train, &error);
    int at = net_farthest(n, got, want, train, &far);
    printf("%s%s by %s: %d arrays within %.1e of f64 (output %d), interpreted f32 within %.1e\n",
           c->name, train ? ", training" : "", by, n->n_out, far, at, error);
    net_free_values(n, got);
    net_free_values(n, want);
    net_free_values(n, own);
    net_free(n);
    return error <= 1e-4 && far <= fmax(8 * error, 1e-5);
}

/* The network by another engine against the interpreter. A value that rounding moves across the
 * corner of a relu changes gradients by percents, in any engine, so that a training step has to
 * agree for one of four draws of its parameters. */
static void net_compare(const net_case *c, bool train, const char *by, net_runner run)
{
    const int first = 3, last = train ? 6 : 3;
    int seed = first;
    while (seed <= last && !net_agrees(c, train, seed, by, run)) {
        seed++;
    }
    CHECK_MSG(seed <= last, "%s%s by %s: too far from f64", c->name, train ? ", training" : "", by);
}

#endif
