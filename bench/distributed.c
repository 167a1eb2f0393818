/* bench/distributed.c - training steps of networks of examples/models on one and on several ranks,
 * as a library for bench/distributed.py, which runs PyTorch's in turns with them.
 *
 * A net is a program of one rank alone, or one whose gradients are averaged over all ranks.
 * Forward, backward and SGD are one program; parameters come from a file, or are random numbers
 * that are equal on all ranks. Inputs are in memory of the device. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc_comm.h"

#include "../examples/models/models.h"
#include "bench.h"

enum { DIST_INPUTS = NN_INPUTS + 1 };

typedef struct dist_net {
    tc_ctx *ctx;
    tc_program *f;
    tc_file *file;
    nn_model model;
    tc_tensor inputs[DIST_INPUTS], result;
    tc_buf in[DIST_INPUTS], out;
    int n_in;
    bool is_parallel;
    double compile_ms;
} dist_net;

/* How a net is made: the members are those of the structure in distributed.py. */
typedef struct dist_ask {
    const char *network, *settings, *weights, *prefix, *dtype;
    int64_t batch, length; /* length: of a text, or a side of an image */
    int64_t bucket_bytes;
    int32_t is_parallel;
} dist_ask;

/* As tc_simulation. */
typedef struct dist_model {
    double step_us, compute_us, comm_us, exposed_us, slowed_us;
} dist_model;

static struct {
    tc_comm *base, *comm; /* comm: of the device's memory */
    char backend[16], why[1024];
} dist;

static bool dist_fail(const char *why)
{
    snprintf(dist.why, sizeof(dist.why), "%s", why);
    return false;
}

TC_API const char *dist_error(void)
{
    return dist.why;
}

static bool dist_is_cuda(void)
{
    return strcmp(dist.backend, "cuda") == 0;
}

/* Joins the ranks that the environment names. */
TC_API int dist_open(const char *backend)
{
    snprintf(dist.backend, sizeof(dist.backend), "%s", backend);
    if (tc_comm_from_env(&dist.base)) {
        return dist_fail(tc_comm_error(NULL));
    }
    dist.comm = dist.base;
    if (dist_is_cuda() && tc_comm_nccl(dist.base, 0, NULL, &dist.comm)) {
        return dist_fail(tc_comm_error(NULL));
    }
    return 1;
}

TC_API void dist_close(void)
{
    if (dist.comm != dist.base) {
        tc_comm_free(dist.comm);
    }
    tc_comm_free(dist.base);
}

/* latency in us, GB/s, and the share of their speed that kernels lose. */
TC_API int dist_measure(double *numbers)
{
    tc_link link;
    if (tc_comm_measure(dist.comm, dist.backend, &link)) {
        return dist_fail(tc_comm_error(dist.comm));
    }
    numbers[0] = link.latency_us;
    numbers[1] = link.gb_per_s;
    numbers[2] = link.busy;
    return 1;
}

/* ---- a net ---- */

static void *dist_get(int64_t bytes)
{
    void *p = NULL;
    if (!dist_is_cuda()) {
        return malloc((size_t)bytes + 1);
    }
    return tc_cuda_alloc(bytes, &p) ? NULL : p;
}

static bool dist_copy(void *to, const void *from, int64_t bytes)
{
    if (dist_is_cuda()) {
        return tc_cuda_copy(to, from, bytes) == TC_OK;
    }
    memcpy(to, from, (size_t)bytes);
    return true;
}

static tc_tensor dist_input(dist_net *n, const char *name, tc_dtype dtype, int rank,
                            const int64_t *sizes)
{
    int64_t list[NN_RANK + 1] = {dtype};
    memcpy(list + 1, sizes, (size_t)rank * sizeof(*sizes));
    tc_tensor t = tc_input_at(n->ctx, name, rank + 1, list, TC_HERE);
    int64_t bytes = tc_nbytes(t);
    n->in[n->n_in] = (tc_buf){.data = dist_get(bytes), .n = bytes, .dtype = -1};
    n->inputs[n->n_in++] = t;
    return t;
}

/* Cross entropy against classes that are given; of hidden values their mean square. */
static tc_tensor dist_loss(dist_net *n, const nn_network *network, tc_tensor y)
{
    tc_tensor wide = tc_cast(y, TC_F32);
    if (strcmp(network->outputs[0], "out")) {
        return tc_mean(tc_square(wide), TC_ALL, false);
    }
    int64_t classes = tc_size(y, -1), rows = tc_count(y) / classes;
    tc_tensor target = dist_input(n, "target", TC_I64, 1, &rows);
    return tc_cross_entropy(tc_reshape(wide, rows, classes), target);
}

static void dist_forward(dist_net *n, const nn_network *network, const dist_ask *ask)
{
    bool images = !strcmp(network->inputs[0], "x");
    int64_t image[4] = {ask->batch, 3, ask->length, ask->length};
    int64_t words[2] = {ask->batch, ask->length};
    tc_tensor y[NN_OUTPUTS];
    for (int i = 0; i < NN_INPUTS && network->inputs[i]; i++) {
        dist_input(n, network->inputs[i], images ? n->model.dtype : TC_I64, images ? 4 : 2,
                   images ? image : words);
    }
    network->build(nn_top(&n->model), n->inputs, y);
    n->result = dist_loss(n, network, y[0]);
}

/* Gradients, their mean over all ranks, updates. */
static bool dist_backward(dist_net *n, const dist_ask *ask)
{
    int many = n->model.n_state, n_effects = 0;
    tc_tensor *w = malloc(7 * (size_t)many * sizeof(*w) + sizeof(*w)), *g = w + many;
    tc_tensor *outs = g + many;
    int n_learning = nn_learning(&n->model, w);
    tc_status status = tc_grad(n->result, w, n_learning, g);
    if (!status && n->is_parallel) {
        tc_buckets buckets = {.bytes = ask->bucket_bytes};
        status = tc_all_reduce_grads(dist.comm, g, n_learning, &buckets, g);
    }
    status = status ? status : tc_sgd(w, g, n_learning, 0.01, NULL, outs + 1, &n_effects);
    for (int i = 0; i < n->model.n_effects; i++) {
        outs[1 + n_effects++] = n->model.effects[i];
    }
    outs[0] = n->result;
    double begin = bench_now_ns();
    status = status ? status
                    : tc_compile_fn(TC_TENSORS_N(n->inputs, n->n_in),
                                    TC_TENSORS_N(outs, 1 + n_effects), NULL, &n->f);
    n->compile_ms = (bench_now_ns() - begin) / 1e6;
    free(w);
    return !status || dist_fail(nn_error(&n->model));
}

/* NULL: dist_error tells why. */
TC_API dist_net *dist_make(const dist_ask *ask)
{
    const nn_network *network = nn_find(ask->network);
    dist_net *n = calloc(1, sizeof(*n));
    tc_options options = {.backend = dist.backend,
                          .fallback = TC_FALLBACK_REFUSE,
                          .cc_timeout_s = 900};
    if (!network || tc_ctx_make(&n->ctx, &options)) {
        dist_fail(network ? "no context" : "no such network");
        return NULL;
    }
    if (ask->weights && tc_file_open(n->ctx, ask->weights, &n->file)) {
        dist_fail(tc_error(n->ctx));
        return NULL;
    }
    n->is_parallel = ask->is_parallel;
    n->model = (nn_model){.ctx = n->ctx,
                          .file = n->file,
                          .prefix = ask->prefix,
                          .settings = ask->settings,
                          .preset = network->preset,
                          .learns = true,
                          .training = true,
                          .dtype = strcmp(ask->dtype, "bf16") ? TC_F32 : TC_BF16};
    dist_forward(n, network, ask);
    if (!dist_backward(n, ask)) {
        return NULL;
    }
    int64_t bytes = tc_nbytes(n->result);
    n->out = (tc_buf){.data = dist_get(bytes), .n = bytes, .dtype = -1};
    return n;
}

TC_API double dist_compile_ms(const dist_net *n)
{
    return n->compile_ms;
}

/* Host memory to input i; bytes must be its size. */
TC_API int dist_fill(dist_net *n, int i, const void *data, int64_t bytes)
{
    bool fits = i < n->n_in && n->in[i].n == bytes;
    return fits ? dist_copy(n->in[i].data, data, bytes) : dist_fail("an input of another size");
}

/* So many steps; returns milliseconds a step, or -1. */
TC_API double dist_steps(dist_net *n, int steps)
{
    double begin = bench_now_ns();
    for (int i = 0; i < steps; i++) {
        if (tc_run(n->f, TC_BUFS_N(n->in, n->n_in), TC_BUFS_N(&n->out, 1))) {
            dist_fail(tc_error(n->f));
            return -1;
        }
    }
    return (bench_now_ns() - begin) / 1e6 / steps;
}

/* Of the last step. */
TC_API float dist_last_loss(const dist_net *n)
{
    float loss = 0;
    dist_copy(&loss, n->out.data, sizeof(loss));
    return loss;
}

TC_API int dist_simulate(const dist_net *n, int ranks, const tc_cluster *machine, dist_model *m)
{
    tc_simulation s;
    if (tc_simulate(n->f, machine, NULL, ranks, &s)) {
        return dist_fail("tc_simulate failed");
    }
    *m = (dist_model){s.step_us, s.compute_us, s.comm_us, s.exposed_us, s.slowed_us};
    return 1;
}

/* tc_explain's text in a file. */
TC_API int dist_explain(const dist_net *n, const char *path)
{
    FILE *file = fopen(path, "w");
    bool told = file && tc_explain(n->f, file) == TC_OK;
    if (file) {
        fclose(file);
    }
    return told ? 1 : dist_fail("tc_explain failed");
}

/* The profiler's timeline of so many steps in a file. */
TC_API int dist_profile(dist_net *n, int steps, const char *path)
{
    tc_profile *p = NULL;
    tc_status status = tc_profile_begin(NULL, &p);
    bool ran = !status && dist_steps(n, steps) >= 0;
    if (!status) {
        tc_profile_end(p);
        status = tc_profile_write(p, path);
        tc_profile_free(p);
    }
    return ran && !status ? 1 : dist_fail("the profile failed");
}

TC_API void dist_free(dist_net *n)
{
    tc_program_free(n->f);
    nn_free(&n->model);
    if (n->file) {
        tc_file_close(n->file);
    }
    tc_ctx_free(n->ctx);
    free(n);
}
