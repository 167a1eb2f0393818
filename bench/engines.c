/* bench/engines.c - the networks of examples/models on every engine that is installed, side by
 * side: tc's own code, onnxruntime, OpenVINO and XLA (tc_engines.h).
 *
 *     build/bench_engines [--threads N] [--batch N] [--size N] [--rounds N] [--backends A,B,...]
 *                         [--json] [NAME...]
 *
 * A line for each network and backend: time of a run (best round, rounds in turns), the median of
 * the rounds' ratios to tc's time, how long the compile took, and the largest difference of an
 * output from tc's, in units of its root mean square. Weights are random numbers, the same for all,
 * and constants of every engine's program. What an engine refuses is a line with its words.
 * With --rounds 0 everything is compiled and run once. bench/engines.py makes one table of these
 * and of torch.compile. */
#define TC_IMPLEMENTATION
#include "tc_engines.h"

#include "../examples/models/models.h"
#include "bench.h"

enum {
    MOST_BACKENDS = 12,
    MOST_NAMES = 64,
    NETWORKS = (int)(sizeof(nn_networks) / sizeof(*nn_networks))
};

static struct {
    const char *backends[MOST_BACKENDS], *names[MOST_NAMES];
    int n_backends, n_names, threads, rounds;
    bool json;
    int64_t batch, size;
} ask = {.backends = {"cpu", "onnxrt", "openvino", "openxla"},
         .n_backends = 4,
         .threads = 1,
         .rounds = 7,
         .batch = 1};

static void give_up(const char *why)
{
    fprintf(stderr, "bench_engines: %s\n", why);
    exit(1);
}

/* ---- a network ---- */

typedef struct net {
    tc_ctx *ctx;
    nn_model model;
    tc_tensor inputs[NN_INPUTS], result;
    tc_buf in[NN_INPUTS];
    int n_in;
} net;

/* Weights are constants here: nothing learns. */
static tc_tensor make_constant(nn_model *model, const char *name, nn_kind kind, int rank,
                               const int64_t *sizes)
{
    tc_dtype dtype = kind == NN_COUNT ? TC_I64 : TC_F32;
    int64_t n = 1;
    (void)name;
    for (int i = 0; i < rank; i++) {
        n *= sizes[i];
    }
    float *data = calloc((size_t)n + 1, 8);
    bool ones = kind != NN_WEIGHT && kind != NN_BIAS && kind != NN_MEAN && kind != NN_COUNT;
    float bound = kind == NN_WEIGHT ? 1 / sqrtf((float)n / (float)sizes[0]) : 0;
    for (int64_t i = 0; i < n && dtype == TC_F32; i++) {
        data[i] = ones ? 1 : bound * nn_random(model);
    }
    tc_tensor t = tc_copy_in_at(model->ctx, data, dtype, rank, sizes, NULL, TC_HERE);
    free(data);
    return t;
}

/* An input of random numbers: floats from -1 to 1, or whole numbers below `end`. */
static void add_input(net *n, const char *name, bool words, int64_t end, int rank,
                      const int64_t *sizes)
{
    int64_t list[NN_RANK + 1] = {words ? TC_I64 : TC_F32};
    memcpy(list + 1, sizes, (size_t)rank * sizeof(*sizes));
    tc_tensor t = tc_input_at(n->ctx, name, rank + 1, list, TC_HERE);
    void *data = malloc((size_t)tc_nbytes(t) + 1);
    nn_model numbers = {.random = 5};
    for (int64_t i = 0; i < tc_count(t); i++) {
        float x = nn_random(&numbers);
        if (words) {
            ((int64_t *)data)[i] = end > 2 ? (int64_t)((x + 1) / 2 * (float)(end - 1)) : end - 1;
        } else {
            ((float *)data)[i] = x;
        }
    }
    n->in[n->n_in] = (tc_buf){.data = data, .n = tc_nbytes(t), .dtype = -1};
    n->inputs[n->n_in++] = t;
}

static net make(const nn_network *network)
{
    net n = {0};
    tc_tensor y[NN_OUTPUTS];
    bool images = !strcmp(network->inputs[0], "x");
    int64_t side = ask.size ? ask.size : images ? 224 : 128;
    int64_t image[4] = {ask.batch, 3, side, side}, words[2] = {ask.batch, side};
    if (tc_ctx_make(&n.ctx, &(tc_options){.threads = ask.threads, .cc_timeout_s = 900})) {
        give_up("no context");
    }
    n.model = (nn_model){.ctx = n.ctx, .preset = network->preset, .make = make_constant};
    for (int i = 0; i < NN_INPUTS && network->inputs[i]; i++) {
        add_input(&n, network->inputs[i], !images,
                  i == 0   ? 30000
                  : i == 1 ? 1
                           : 2,
                  images ? 4 : 2, images ? image : words);
    }
    network->build(nn_top(&n.model), n.inputs, y);
    n.result = y[0];
    if (*nn_error(&n.model)) {
        give_up(nn_error(&n.model));
    }
    return n;
}

/* ---- a backend ---- */

typedef struct run_of {
    const char *backend;
    const net *n;
    tc_program *f;
    tc_buf out;
    double compile_ms;
    char why[300];
} run_of;

static void run(void *arg)
{
    run_of *r = arg;
    if (tc_run(r->f, TC_BUFS_N(r->n->in, r->n->n_in), TC_BUFS_N(&r->out, 1))) {
        give_up(tc_error(r->f));
    }
}

static void begin(run_of *r)
{
    tc_options o = {.backend = r->backend, .fallback = TC_FALLBACK_REFUSE};
    double begin_ns = bench_now_ns();
    if (tc_compile_fn(TC_TENSORS_N(r->n->inputs, r->n->n_in), TC_TENSORS(r->n->result), &o,
                      &r->f)) {
        snprintf(r->why, sizeof(r->why), "%s", tc_error(r->n->result));
        return;
    }
    r->compile_ms = (bench_now_ns() - begin_ns) / 1e6;
    r->out = (tc_buf){.data = malloc((size_t)tc_nbytes(r->n->result) + 1),
                      .n = tc_nbytes(r->n->result),
                      .dtype = -1};
    run(r);
}

/* In units of the root mean square of b. */
static double difference(const run_of *a, const run_of *b, int64_t n)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = ((float *)a->out.data)[i], y = ((float *)b->out.data)[i];
        most = fmax(most, fabs(x - y));
        sum += y * y;
    }
    return most / sqrt(sum / (double)n + 1e-30);
}

static void say(const nn_network *network, const run_of *r, const bench_side *side, double ratio,
                double far)
{
    if (!r->f) {
        printf(ask.json ? "{\"network\":\"%s\",\"backend\":\"%s\",\"refused\":true}\n"
                        : "%-22s %-16s %s\n",
               network->name, r->backend, r->why);
    } else if (ask.json) {
        printf("{\"network\":\"%s\",\"backend\":\"%s\",\"ms\":%.5g,\"of_tc\":%.4g,"
               "\"compile_ms\":%.5g,\"difference\":%.2g}\n",
               network->name, r->backend, side->best_ns / 1e6, ratio, r->compile_ms, far);
    } else {
        printf("%-22s %-16s %10.3f %8.2f %10.0f %10.1e\n", network->name, r->backend,
               side->best_ns / 1e6, ratio, r->compile_ms, far);
    }
    fflush(stdout);
}

static void measure(const nn_network *network)
{
    net n = make(network);
    run_of runs[MOST_BACKENDS] = {{0}};
    bench_side sides[MOST_BACKENDS] = {{0}};
    int side_of[MOST_BACKENDS], n_sides = 0;
    for (int i = 0; i < ask.n_backends; i++) {
        runs[i] = (run_of){.backend = ask.backends[i], .n = &n};
        begin(&runs[i]);
        side_of[i] = n_sides;
        if (runs[i].f) {
            sides[n_sides++] = (bench_side){.name = runs[i].backend, .run = run, .arg = &runs[i]};
        }
    }
    bench_measure(sides, n_sides, ask.rounds, 100);
    for (int i = 0; i < ask.n_backends; i++) {
        const bench_side *side = &sides[side_of[i]];
        bool both = runs[i].f && runs[0].f;
        say(network, &runs[i], side, both ? bench_ratio(side, &sides[0]) : 0,
            both ? difference(&runs[i], &runs[0], tc_count(n.result)) : 0);
    }
    for (int i = 0; i < ask.n_backends; i++) {
        tc_program_free(runs[i].f);
        free(runs[i].out.data);
    }
    for (int i = 0; i < n.n_in; i++) {
        free(n.in[i].data);
    }
    nn_free(&n.model);
    tc_ctx_free(n.ctx);
    tc_shutdown();
}

/* ---- all of it ---- */

static void read_backends(char *list)
{
    ask.n_backends = 0;
    for (char *at = strtok(list, ","); at && ask.n_backends < MOST_BACKENDS;
         at = strtok(NULL, ",")) {
        ask.backends[ask.n_backends++] = at;
    }
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool named = argv[i][0] == '-' && strcmp(argv[i], "--json");
        ask.json = ask.json || !strcmp(argv[i], "--json");
        if (!strcmp(argv[i], "--threads")) {
            ask.threads = atoi(value);
        } else if (!strcmp(argv[i], "--rounds")) {
            ask.rounds = atoi(value);
        } else if (!strcmp(argv[i], "--batch")) {
            ask.batch = atoi(value);
        } else if (!strcmp(argv[i], "--size")) {
            ask.size = atoi(value);
        } else if (!strcmp(argv[i], "--backends")) {
            read_backends(argv[i + 1]);
        } else if (named) {
            give_up("[--threads N] [--batch N] [--size N] [--rounds N] [--backends A,B,...] "
                    "[--json] [NAME...]");
        } else if (argv[i][0] != '-' && ask.n_names < MOST_NAMES) {
            ask.names[ask.n_names++] = argv[i];
        }
        i += named;
    }
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    if (!ask.json) {
        printf("%-22s %-16s %10s %8s %10s %10s\n", "network", "backend", "ms", "of tc",
               "compile ms", "differs");
    }
    for (int i = 0; i < NETWORKS; i++) {
        bool wanted = ask.n_names == 0;
        for (int k = 0; k < ask.n_names; k++) {
            wanted = wanted || !strcmp(ask.names[k], nn_networks[i].name);
        }
        if (wanted) {
            measure(&nn_networks[i]);
        }
    }
    return 0;
}
