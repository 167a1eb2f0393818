/* bench/models.c - the networks of examples/models: time of a run or a training step, as tc
 * compiles it against one kernel for each op.
 *
 *     build/bench_models [--backend cpu|cuda] [--train] [--batch N] [--dtype f32|bf16] [--size N]
 *                        [--fast] [--json] [--cold] [NAME...]
 *
 * A line each: the step as it is fused and with every op a kernel of its own, in turns (times are
 * of the best round, the ratio is the median of the rounds'); kernels and launches of both; how
 * long a compile takes with nothing cached and with everything on disk; workspace of a run, and
 * what is kept between runs; the parameters, and how much more memory than before the network was
 * there the process (of a GPU the device) had in use at most, from when its weights lay there to
 * behind the first runs. Weights are random numbers, the same in both, and so are images and words;
 * what both computed is printed: losses of the first and the last step, or the size of the output.
 * Weights and what the network reads lie in memory of the device. --fast: TC_MATH_FAST.
 * bench/models_peers.py runs this program and PyTorch in turns. --cold: only a compile with nothing
 * cached, its milliseconds and the processor time of tc and of the compilers it started, as JSON
 * (bench/cold_compile.py). */
#define _GNU_SOURCE
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include <ftw.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../examples/models/models.h"
#include "bench.h"

enum {
    MOST_IN = NN_INPUTS + 1,
    ROUNDS = 5,
    ROUND_MS = 100,
    NETWORKS = (int)(sizeof(nn_networks) / sizeof(*nn_networks))
};

/* What is asked for. */
static struct {
    const char *backend, *dtype;
    bool train, json, fast, cold, cuda;
    int64_t batch, size;
    char cache[64];
} ask = {.backend = "cpu", .dtype = "f32", .batch = 1};

/* A network made one way. */
typedef struct net {
    tc_ctx *ctx;
    tc_program *f;
    nn_model model;
    tc_tensor inputs[MOST_IN], result; /* result: the loss, or the first output */
    tc_buf in[MOST_IN], out;
    int n_in;
    double compile_ms, compile_cpu_s; /* of the compile: by the clock; of all processors */
    double first;                     /* the loss of the first step */
    double params_mb, peak_mb;
    tc_program_info info;
} net;

static void give_up(const char *why)
{
    fprintf(stderr, "bench_models: %s\n", why);
    exit(1);
}

static void *get(int64_t bytes)
{
    void *p = NULL;
    if (!ask.cuda) {
        p = malloc((size_t)bytes + 1);
    } else if (tc_cuda_alloc(bytes, &p)) {
        p = NULL;
    }
    if (!p) {
        give_up("out of memory");
    }
    return p;
}

static void give(void *data)
{
    if (ask.cuda) {
        tc_cuda_free(data);
    } else {
        free(data);
    }
}

/* MB in use at most since memory_begin was called last, as the system counts. On a device: now, as
 * nothing of what a network takes goes before it ends. */
static double memory_most(void)
{
    const char *from = ask.cuda ? "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"
                                : "sed -n 's/VmHWM: *//p' /proc/$PPID/status";
    FILE *file = popen(from, "r");
    double number = 0;
    if (file) {
        number = fscanf(file, "%lf", &number) == 1 ? number : 0;
        pclose(file);
    }
    return ask.cuda ? number * 1.048576 : number * 1.024e-3;
}

static double memory_begin(void)
{
    malloc_trim(0);                                   /* what earlier networks gave back */
    FILE *file = fopen("/proc/self/clear_refs", "w"); /* 5: the most begins with what is there */
    if (file) {
        fputs("5", file);
        fclose(file);
    }
    give(get(1)); /* a device has its context */
    return memory_most();
}

static void copy(void *to, const void *from, int64_t bytes)
{
    if (!ask.cuda) {
        memcpy(to, from, (size_t)bytes);
    } else if (tc_cuda_copy(to, from, bytes)) {
        give_up("the device does not copy");
    }
}

/* ---- a network and its inputs ---- */

/* An input of random numbers: floats from -1 to 1, or whole numbers from `least` to below `end`. */
static tc_tensor add_input(net *n, const char *name, tc_dtype dtype, int64_t least, int64_t end,
                           int rank, const int64_t *sizes)
{
    int64_t list[NN_RANK + 1] = {dtype};
    memcpy(list + 1, sizes, (size_t)rank * sizeof(*sizes));
    tc_tensor t = tc_input_at(n->ctx, name, rank + 1, list, TC_HERE);
    int64_t bytes = tc_nbytes(t);
    void *data = malloc((size_t)bytes + 1);
    nn_model numbers = {.random = 5};
    for (int64_t i = 0; i < tc_count(t); i++) {
        if (dtype == TC_I64) {
            int64_t more = (int64_t)((nn_random(&numbers) + 1) / 2 * (float)(end - least));
            ((int64_t *)data)[i] = least + more % (end - least);
        } else {
            nn_store(data, dtype, i, nn_random(&numbers));
        }
    }
    n->in[n->n_in] = (tc_buf){.data = get(bytes), .n = bytes, .dtype = -1};
    copy(n->in[n->n_in].data, data, bytes);
    n->inputs[n->n_in++] = t;
    free(data);
    return t;
}

static void add_inputs(net *n, const nn_network *network)
{
    bool images = !strcmp(network->inputs[0], "x");
    int64_t side = ask.size ? ask.size : images ? 224 : 128;
    int64_t image[4] = {ask.batch, 3, side, side}, words[2] = {ask.batch, side};
    for (int i = 0; i < NN_INPUTS && network->inputs[i]; i++) {
        int64_t least = i == 2, end = i == 0 ? 30000 : 2; /* words, types of them, a mask of ones */
        add_input(n, network->inputs[i], images ? n->model.dtype : TC_I64, least, end,
                  images ? 4 : 2, images ? image : words);
    }
}

/* Cross entropy against random classes; of hidden values their mean square. */
static tc_tensor loss_of(net *n, const nn_network *network, tc_tensor y)
{
    tc_tensor wide = tc_cast(y, TC_F32);
    if (strcmp(network->outputs[0], "out")) {
        return tc_mean(tc_square(wide), TC_ALL, false);
    }
    int64_t classes = tc_size(y, -1), rows = tc_count(y) / classes;
    tc_tensor target = add_input(n, "target", TC_I64, 0, classes, 1, &rows);
    return tc_cross_entropy(tc_reshape(wide, rows, classes), target);
}

/* The outputs of a program: the result, and in training the updates. */
static int add_step(net *n, tc_tensor *outs)
{
    int many = n->model.n_state, n_effects;
    tc_tensor *w = malloc(2 * (size_t)many * sizeof(*w) + 1), *g = w + many;
    int n_learning = nn_learning(&n->model, w);
    if (tc_grad(n->result, w, n_learning, g) ||
        tc_sgd(w, g, n_learning, 0.01, NULL, outs, &n_effects)) {
        give_up(nn_error(&n->model));
    }
    free(w);
    for (int i = 0; i < n->model.n_effects; i++) {
        outs[n_effects++] = n->model.effects[i];
    }
    return n_effects;
}

/* Of this process and of those that it waited for. */
static double processor_seconds(void)
{
    double seconds = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage used;
        getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
        seconds += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    }
    return seconds;
}

static net make(const nn_network *network, int fusion)
{
    net n = {0};
    tc_tensor y[NN_OUTPUTS];
    tc_options options = {.backend = ask.backend,
                          .fallback = TC_FALLBACK_REFUSE,
                          .math = ask.fast ? TC_MATH_FAST : TC_MATH_EXACT,
                          .fusion = fusion,
                          .cache_dir = ask.cache,
                          .cc_timeout_s = 900};
    if (tc_ctx_make(&n.ctx, &options)) {
        give_up("no context");
    }
    n.model = (nn_model){.ctx = n.ctx,
                         .preset = network->preset,
                         .learns = true,
                         .training = ask.train,
                         .dtype = strcmp(ask.dtype, "bf16") ? TC_F32 : TC_BF16};
    add_inputs(&n, network);
    network->build(nn_top(&n.model), n.inputs, y);
    n.result = ask.train ? loss_of(&n, network, y[0]) : y[0];
    tc_tensor *outs = malloc(((size_t)n.model.n_state * 5 + 8) * sizeof(*outs));
    outs[0] = n.result;
    int n_outs = 1 + (ask.train ? add_step(&n, outs + 1) : 0);
    memory_begin();
    double begin = bench_now_ns(), cpu = processor_seconds();
    tc_tensors all = TC_TENSORS_N(outs, n_outs);
    if (*nn_error(&n.model) || tc_compile_fn(TC_TENSORS_N(n.inputs, n.n_in), all, NULL, &n.f)) {
        give_up(nn_error(&n.model));
    }
    n.compile_ms = (bench_now_ns() - begin) / 1e6;
    n.compile_cpu_s = processor_seconds() - cpu;
    free(outs);
    tc_program_get_info(n.f, &n.info);
    int64_t bytes = tc_nbytes(n.result);
    n.out = (tc_buf){.data = get(bytes), .n = bytes, .dtype = -1};
    for (int i = 0; i < n.model.n_state; i++) {
        n.params_mb += (double)tc_nbytes(n.model.state[i].tensor) / 1e6;
    }
    return n;
}

static void end(net *n)
{
    for (int i = 0; i <= n->n_in; i++) {
        give(i < n->n_in ? n->in[i].data : n->out.data);
    }
    nn_free(&n->model);
    tc_program_free(n->f);
    tc_ctx_free(n->ctx);
}

static void run(void *arg)
{
    net *n = (net *)arg;
    if (tc_run(n->f, TC_BUFS_N(n->in, n->n_in), TC_BUFS_N(&n->out, 1))) {
        give_up(tc_error(n->f));
    }
}

/* Root mean square of the result; of a loss the loss. */
static double result_of(const net *n)
{
    int64_t count = tc_count(n->result);
    tc_dtype dtype = tc_dtype_of(n->result);
    char *data = malloc((size_t)n->out.n + 1);
    double sum = 0;
    copy(data, n->out.data, n->out.n);
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        float value;
        memcpy((char *)&bits + (dtype == TC_BF16 ? 2 : 0), data + i * (dtype == TC_BF16 ? 2 : 4),
               dtype == TC_BF16 ? 2 : 4);
        memcpy(&value, &bits, sizeof(value));
        sum += (double)value * (double)value;
    }
    free(data);
    return sqrt(sum / (double)count);
}

/* ---- a line ---- */

static void say(const nn_network *network, const net *fused, const net *apart, double cold_ms,
                const bench_side *sides)
{
    double ms = sides[0].best_ns / 1e6, apart_ms = sides[1].best_ns / 1e6, mb = 1 / 1e6;
    double arena = (double)fused->info.arena_bytes * mb, kept = (double)fused->info.kept_bytes * mb;
    if (ask.json) {
        printf("{\"name\": \"%s\", \"ms\": %.5g, \"apart_ms\": %.5g, \"kernels\": %d, "
               "\"launches\": %d, \"apart_kernels\": %d, \"apart_launches\": %d, "
               "\"cold_ms\": %.5g, \"warm_ms\": %.5g, \"workspace_mb\": %.5g, \"kept_mb\": %.5g, "
               "\"apart_workspace_mb\": %.5g, \"first\": %.8g, \"apart_first\": %.8g, "
               "\"last\": %.8g, \"params_mb\": %.5g, \"peak_mb\": %.5g}\n",
               network->name, ms, apart_ms, fused->info.n_kernels, fused->info.n_steps,
               apart->info.n_kernels, apart->info.n_steps, cold_ms, fused->compile_ms, arena, kept,
               (double)apart->info.arena_bytes * mb, fused->first, apart->first, result_of(fused),
               fused->params_mb, fused->peak_mb);
    } else {
        printf("%-22s %9.3f %9.3f %6.2f  %4d/%-5d %4d/%-5d %7.0f %6.1f %8.1f %8.1f %8.1f "
               "%8.1f %8.1f  %.6g %.6g %.6g\n",
               network->name, ms, apart_ms, bench_ratio(&sides[1], &sides[0]),
               fused->info.n_kernels, fused->info.n_steps, apart->info.n_kernels,
               apart->info.n_steps, cold_ms, fused->compile_ms, arena,
               (double)apart->info.arena_bytes * mb, kept, fused->params_mb, fused->peak_mb,
               fused->first, apart->first, result_of(fused));
    }
    fflush(stdout);
}

static double measure(const nn_network *network)
{
    double before_mb = memory_begin();
    net cold = make(network, 0);
    double cold_ms = cold.compile_ms;
    for (int i = 0; i < 3; i++) {
        run(&cold);
    }
    double peak_mb = memory_most() - before_mb;
    end(&cold);
    tc_shutdown(); /* only the disk remembers */
    net fused = make(network, 0), apart = make(network, -1);
    fused.peak_mb = peak_mb;
    bench_side sides[2] = {{.name = "fused", .run = run, .arg = &fused},
                           {.name = "apart", .run = run, .arg = &apart}};
    run(&fused);
    run(&apart);
    fused.first = result_of(&fused);
    apart.first = result_of(&apart);
    bench_measure(sides, 2, ROUNDS, ROUND_MS);
    say(network, &fused, &apart, cold_ms, sides);
    double ratio = bench_ratio(&sides[1], &sides[0]);
    end(&fused);
    end(&apart);
    return ratio;
}

static void measure_cold(const nn_network *network)
{
    net cold = make(network, 0);
    printf("{\"name\": \"%s\", \"cold_ms\": %.5g, \"cold_cpu_s\": %.4g, \"kernels\": %d}\n",
           network->name, cold.compile_ms, cold.compile_cpu_s, cold.info.n_kernels);
    fflush(stdout);
    end(&cold);
    tc_shutdown();
}

/* ---- all of it ---- */

static void usage(void)
{
    give_up("[--backend cpu|cuda] [--train] [--batch N] [--dtype f32|bf16] [--size N] [--fast] "
            "[--json] [--cold] [NAME...]");
}

static const char *option(int argc, char **argv, int *i)
{
    if (*i + 1 >= argc) {
        usage();
    }
    return argv[++*i];
}

static int remove_one(const char *path, const struct stat *facts, int type, struct FTW *place)
{
    (void)facts;
    (void)type;
    (void)place;
    return remove(path);
}

/* The networks that are named, or all of them; how many. */
static int read_options(int argc, char **argv, const nn_network **list)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--backend")) {
            ask.backend = option(argc, argv, &i);
        } else if (!strcmp(argv[i], "--train")) {
            ask.train = true;
        } else if (!strcmp(argv[i], "--fast")) {
            ask.fast = true;
        } else if (!strcmp(argv[i], "--json")) {
            ask.json = true;
        } else if (!strcmp(argv[i], "--cold")) {
            ask.json = ask.cold = true;
        } else if (!strcmp(argv[i], "--batch")) {
            ask.batch = atoi(option(argc, argv, &i));
        } else if (!strcmp(argv[i], "--size")) {
            ask.size = atoi(option(argc, argv, &i));
        } else if (!strcmp(argv[i], "--dtype")) {
            ask.dtype = option(argc, argv, &i);
        } else if (nn_find(argv[i]) && n < NETWORKS) {
            list[n++] = nn_find(argv[i]);
        } else {
            usage();
        }
    }
    ask.cuda = !strcmp(ask.backend, "cuda");
    int named = n;
    for (int i = 0; named == 0 && i < NETWORKS; i++) {
        const nn_network *one = &nn_networks[i], *before = n ? list[n - 1] : NULL;
        if (!before || before->build != one->build || strcmp(before->preset, one->preset)) {
            list[n++] = one; /* and no other name of the same */
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    const nn_network *list[NETWORKS];
    int n = read_options(argc, argv, list);
    double logs = 0;
    snprintf(ask.cache, sizeof(ask.cache), "/tmp/tc-bench-models-XXXXXX");
    if (!mkdtemp(ask.cache)) {
        give_up("no directory for the cache");
    }
    if (!ask.json) {
        printf("%s, %s, batch %lld, %s; ms of a %s: fused, apart, their ratio; kernels / launches "
               "of both;\nms of a compile: cold, from disk; MB: workspace of both, kept, "
               "parameters, peak; %s\n",
               ask.backend, ask.dtype, (long long)ask.batch, ask.train ? "training" : "inference",
               ask.train ? "step" : "run", ask.train ? "loss: first of both, last" : "output: rms");
    }
    for (int i = 0; i < n && ask.cold; i++) {
        measure_cold(list[i]);
    }
    for (int i = 0; i < n && !ask.cold; i++) {
        logs += log(measure(list[i]));
    }
    if (!ask.json) {
        printf("geometric mean of the ratios: %.2f\n", exp(logs / n));
    }
    nftw(ask.cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
