/* tests/networks.h - the networks of examples/models, shrunken, with random weights: for tests that
 * compare an engine with tc's interpreter.
 *
 * In: a row of net_cases. Out: a graph of the outputs or, of a training step, of the loss and the
 * gradients of all parameters, with the values of its inputs. tests/model_case.h compares networks
 * with what PyTorch computed. */
#ifndef TC_TEST_NETWORKS_H
#define TC_TEST_NETWORKS_H

#include "../examples/models/models.h"
#include "tc_test.h"

typedef struct net_case {
    const char *name, *settings;
    int64_t batch, size; /* of images: their side; of texts: their length */
    double step_bound;   /* of gradients: net_far; */
} net_case;

#define NET_BERT "vocab_size=100 max_position_embeddings=32 num_hidden_layers=2 "
#define NET_LLAMA                                                                                  \
    "vocab_size=100 hidden_size=48 intermediate_size=96 num_hidden_layers=2 "                      \
    "num_attention_heads=4 num_key_value_heads=2"
static const net_case net_cases[] = {
    {"resnet18", "width_divisor=8 classes=10", 4, 64, 1e-3},
    {"resnet50", "width_divisor=16 classes=10", 4, 64, 1e-3},
    {"resnext50_32x4d", "width_divisor=16 classes=10", 4, 64, 1e-3},
    {"resnext101_32x8d", "width_divisor=32 classes=10", 4, 64, 1e-3},
    {"alexnet", "width_divisor=16 classes=10", 2, 64, 1e-4},
    {"vgg16", "width_divisor=32 classes=10", 2, 32, 1e-4},
    {"squeezenet1_1", "width_divisor=4 classes=10", 2, 64, 1e-4},
    {"mobilenet_v2", "width_mult=0.25 classes=10", 4, 64, 5e-3},
    {"mnasnet1_0", "alpha=0.1 classes=10", 4, 64, 5e-3},
    {"vit_tiny_patch16_224", "patch_size=8 embed_dim=48 depth=3 num_heads=3 num_classes=10", 2, 32,
     1e-4},
    {"vit_base_patch16_224", "patch_size=8 embed_dim=96 depth=3 num_heads=12 num_classes=10", 2, 32,
     1e-4},
    {"bert_base", NET_BERT "hidden_size=48 num_attention_heads=4 intermediate_size=96", 3, 12,
     1e-4},
    {"bert_small", NET_BERT "hidden_size=32 num_attention_heads=8 intermediate_size=64", 2, 9,
     1e-4},
    {"bert_minilm_l6", NET_BERT "hidden_size=36 num_attention_heads=12 intermediate_size=72", 2, 16,
     1e-4},
    {"gpt2", "vocab_size=100 n_positions=32 n_embd=48 n_layer=2 n_head=4", 2, 12, 1e-4},
    {"llama", NET_LLAMA, 2, 12, 1e-4},
};
enum { NET_CASES = (int)(sizeof(net_cases) / sizeof(*net_cases)), NET_PARAMS = 512 };

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

static net *net_make(const char *name, bool train)
{
    net *n = calloc(1, sizeof(*n));
    const nn_network *network = nn_find(name);
    tc_tensor y[NN_OUTPUTS];
    tc_options o = {.backend = "interp", .threads = 2};
    REQUIRE(n && network);
    n->c = net_find(name);
    n->model = (nn_model){.settings = n->c->settings,
                          .preset = network->preset,
                          .learns = true,
                          .training = train,
                          .random = 3};
    REQUIRE(tc_ctx_make(&n->model.ctx, &o) == TC_OK);
    for (int i = 0; i < NN_INPUTS && network->inputs[i]; i++) {
        net_add_input(n, network->inputs[i], !strcmp(network->inputs[0], "x"));
    }
    network->build(nn_top(&n->model), n->in, y);
    while (n->n_out < NN_OUTPUTS && network->outputs[n->n_out]) {
        n->out[n->n_out] = y[n->n_out];
        n->n_out++;
    }
    if (train) {
        net_add_step(n, y, n->n_out);
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

/* How far the worst output is, after a check that all are within the bound: of each its difference
 * over its largest element, or over a hundredth of the largest of all outputs, which bounds
 * gradients that are 0 except for rounding. */
static double net_check(const net *n, const char *by, float *const *got, float *const *want,
                        bool train)
{
    double bound = train ? n->c->step_bound : 1e-4, worst = 0, all = 0;
    for (int i = train; i < n->n_out; i++) { /* the loss is in other units */
        all = fmax(all, net_largest(n, i, want[i]));
    }
    for (int i = 0; i < n->n_out; i++) {
        double own = net_largest(n, i, want[i]);
        double far = net_far(n, i, got[i], want[i], fmax(own, train && i ? all / 100 : 0));
        CHECK_MSG(own > 0, "%s: output %d is all zeros", n->c->name, i);
        CHECK_MSG(far <= bound, "%s by %s: output %d of %d differs by %.2g of its largest element",
                  n->c->name, by, i, n->n_out, far);
        worst = fmax(worst, far);
    }
    return worst;
}

#endif
