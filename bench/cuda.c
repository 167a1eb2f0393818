/* bench/cuda.c - programs on one GPU, inputs and outputs in its memory.
 *
 * A row: milliseconds of one tc_run (it waits for the device), and of the device alone: replays
 * of the program's graph, one behind the other, less what one takes. Both also as ratios to a copy
 * of the same bytes measured in the same two ways. Medians. An argument: only cases whose name
 * holds it. --start: how long a fresh process takes to its first result, and what it had to load.
 *
 * Built with -DBENCH_SHARED -shared -fPIC it is a library for bench/cuda_peers.py, which runs the
 * same cases by PyTorch in turns with these, on the same memory of the same card. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define M64 ((int64_t)1 << 26)
#define M16 (M64 / 4)

typedef struct bench_case {
    const char *name;
    tc_tensor (*make)(tc_ctx *ctx);
    tc_dtype dtype;      /* of input and output: f32 or bf16 */
    int64_t n_in, n_out; /* elements */
    double flops;
    tc_program *f;
    void *in, *out;
} bench_case;

static tc_tensor make_add(tc_ctx *ctx)
{
    return tc_add(tc_input(ctx, "x", TC_F32, M64), 1);
}
static tc_tensor make_waves(tc_ctx *ctx)
{
    return tc_sin(tc_cos(tc_input(ctx, "x", TC_F32, M64)));
}
static tc_tensor make_more_waves(tc_ctx *ctx)
{
    return tc_sin(tc_cos(tc_input(ctx, "x", TC_F32, 4 * M64)));
}
static tc_tensor make_gelu(tc_ctx *ctx)
{
    return tc_gelu(tc_input(ctx, "x", TC_F32, M64));
}
static tc_tensor square(tc_ctx *ctx)
{
    return tc_input(ctx, "x", TC_F32, 8192, 8192);
}
static tc_tensor make_softmax(tc_ctx *ctx)
{
    return tc_softmax(square(ctx), -1);
}
static tc_tensor make_short_softmax(tc_ctx *ctx)
{
    return tc_softmax(tc_input(ctx, "x", TC_F32, 65536, 1024), -1);
}
static tc_tensor make_norm(tc_ctx *ctx)
{
    return tc_layer_norm(square(ctx), TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
}
static tc_tensor make_rows(tc_ctx *ctx)
{
    return tc_sum(square(ctx), TC_AXES(1), false);
}
static tc_tensor make_columns(tc_ctx *ctx)
{
    return tc_sum(square(ctx), TC_AXES(0), false);
}
static tc_tensor make_all(tc_ctx *ctx)
{
    return tc_sum(tc_input(ctx, "x", TC_F32, M64), TC_ALL, false);
}
static tc_tensor make_turned(tc_ctx *ctx)
{
    return tc_add(tc_permute(square(ctx), 1, 0), 1);
}
static tc_tensor make_product(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2048, 2048);
    return tc_matmul(x, x);
}
static tc_tensor make_large_product(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4096, 4096);
    return tc_matmul(x, x);
}
static tc_tensor make_layer(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2048, 2048);
    return tc_gelu(tc_add(tc_matmul(x, x), 0.5));
}
static tc_tensor make_chain(tc_ctx *ctx)
{
    tc_tensor y = tc_input(ctx, "x", TC_F32, 256, 256);
    for (int i = 0; i < 10; i++) {
        y = tc_cumsum(y, i % 2);
    }
    return y;
}

/* Products of bf16: both matrices, and what is added, lie one behind the other in one input. */
static tc_tensor part_of(tc_tensor x, int64_t at, int64_t rows, int64_t columns)
{
    tc_tensor flat = tc_slice(x, 0, at, at + rows * columns, 1);
    return rows == 1 ? flat : tc_reshape(flat, rows, columns);
}
static tc_tensor product_of(tc_tensor x, int64_t m, int64_t n, int64_t k)
{
    return tc_matmul(part_of(x, 0, m, k), part_of(x, m * k, k, n));
}
static tc_tensor make_product_4096(tc_ctx *ctx)
{
    return product_of(tc_input(ctx, "x", TC_BF16, 2 * M16), 4096, 4096, 4096);
}
static tc_tensor make_product_8192(tc_ctx *ctx)
{
    return product_of(tc_input(ctx, "x", TC_BF16, 2 * M64), 8192, 8192, 8192);
}
static tc_tensor make_layer_4096(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2 * M16 + 4096);
    return tc_gelu(tc_add(product_of(x, 4096, 4096, 4096), part_of(x, 2 * M16, 1, 4096)));
}
static tc_tensor make_layer_8192(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2 * M64 + 8192);
    return tc_gelu(tc_add(product_of(x, 8192, 8192, 8192), part_of(x, 2 * M64, 1, 8192)));
}
static tc_tensor make_odd_product(tc_ctx *ctx)
{
    return product_of(tc_input(ctx, "x", TC_BF16, 1016 * (4104 + 4000)), 4104, 4000, 1016);
}
static tc_tensor make_small_product(tc_ctx *ctx)
{
    return product_of(tc_input(ctx, "x", TC_BF16, 2 * 512 * 512), 512, 512, 512);
}
static tc_tensor make_few_rows(tc_ctx *ctx)
{
    return product_of(tc_input(ctx, "x", TC_BF16, 16 * 4096 + M16), 16, 4096, 4096);
}
static tc_tensor make_batch(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2 * M16);
    return tc_matmul(tc_reshape(part_of(x, 0, 1, M16), 16, 1024, 1024),
                     tc_reshape(part_of(x, M16, 1, M16), 16, 1024, 1024));
}

static bench_case cases[] = {
    {"x + 1, 64 M", make_add, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"sin(cos(x)), 64 M", make_waves, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"sin(cos(x)), 256 M", make_more_waves, TC_F32, 4 * M64, 4 * M64, 0, NULL, NULL, NULL},
    {"gelu, 64 M", make_gelu, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"softmax 8192x8192", make_softmax, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"softmax 65536x1024", make_short_softmax, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"layer_norm 8192x8192", make_norm, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"sum of rows 8192x8192", make_rows, TC_F32, M64, 8192, 0, NULL, NULL, NULL},
    {"sum of columns 8192x8192", make_columns, TC_F32, M64, 8192, 0, NULL, NULL, NULL},
    {"sum of all, 64 M", make_all, TC_F32, M64, 1, 0, NULL, NULL, NULL},
    {"transpose + 1, 8192x8192", make_turned, TC_F32, M64, M64, 0, NULL, NULL, NULL},
    {"matmul f32 2048", make_product, TC_F32, M64 / 16, M64 / 16, 2048.0 * (M64 / 8), NULL, NULL,
     NULL},
    {"matmul f32 4096", make_large_product, TC_F32, M64 / 4, M64 / 4, 4096.0 * (M64 / 2), NULL,
     NULL, NULL},
    {"gelu(x @ x + 0.5), 2048", make_layer, TC_F32, M64 / 16, M64 / 16, 2048.0 * (M64 / 8), NULL,
     NULL, NULL},
    {"matmul bf16 4096", make_product_4096, TC_BF16, 2 * M16, M16, 8192.0 * M16, NULL, NULL, NULL},
    {"matmul bf16 8192", make_product_8192, TC_BF16, 2 * M64, M64, 16384.0 * M64, NULL, NULL, NULL},
    {"matmul + bias, gelu 4096", make_layer_4096, TC_BF16, 2 * M16 + 4096, M16, 8192.0 * M16, NULL,
     NULL, NULL},
    {"matmul + bias, gelu 8192", make_layer_8192, TC_BF16, 2 * M64 + 8192, M64, 16384.0 * M64, NULL,
     NULL, NULL},
    {"matmul 4104x4000x1016", make_odd_product, TC_BF16, 1016 * (4104 + 4000), 4104 * 4000,
     2032.0 * 4104 * 4000, NULL, NULL, NULL},
    {"matmul 512x512x512", make_small_product, TC_BF16, 2 * 512 * 512, 512 * 512,
     1024.0 * 512 * 512, NULL, NULL, NULL},
    {"matmul 16x4096x4096", make_few_rows, TC_BF16, 16 * 4096 + M16, 16 * 4096, 8192.0 * 16 * 4096,
     NULL, NULL, NULL},
    {"matmul 16 x 1024", make_batch, TC_BF16, 2 * M16, M16, 2048.0 * M16, NULL, NULL, NULL},
    {"chain of ten kernels, 64 K", make_chain, TC_F32, 65536, 65536, 0, NULL, NULL, NULL},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]), RUNS = 21, MOST_RUNS = 1001 };

static tc_ctx *context;
static char said[512];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *ms, int n)
{
    qsort(ms, (size_t)n, sizeof(*ms), by_value);
    return ms[n / 2];
}

static bool begin(void)
{
    tc_options options;
    void *probe = NULL;
    memset(&options, 0, sizeof(options));
    options.backend = "cuda";
    options.fallback = TC_FALLBACK_REFUSE;
    if (context) {
        return true;
    }
    if (tc_cuda_alloc(1, &probe) || tc_ctx_make(&context, &options)) {
        return false;
    }
    tc_cuda_free(probe);
    return true;
}

/* Compiles the case and runs it once on this memory of the device. */
static bool open_case(bench_case *c, void *in, void *out)
{
    tc_tensor y = c->make(context);
    if (tc_compile(y, &c->f)) {
        snprintf(said, sizeof(said), "%s", tc_error(y));
        return false;
    }
    c->in = in;
    c->out = out;
    return true;
}

static int64_t size_of(const bench_case *c)
{
    return c->dtype == TC_BF16 ? 2 : 4;
}

static double call_ms(bench_case *c)
{
    double at = now_ms();
    int64_t size = size_of(c);
    if (tc_run(c->f, TC_BUFS(TC_BUF(c->in, c->n_in * size)),
               TC_BUFS(TC_BUF(c->out, c->n_out * size)))) {
        fprintf(stderr, "%s: %s\n", c->name, tc_error(c->f));
        exit(1);
    }
    return now_ms() - at;
}

/* Time of n replays of what the last run recorded, and of waiting for them. */
static double replays_ms(bench_case *c, int n)
{
    tc_call *call = tci_call_take(c->f);
    const tc_backend *device = c->f->code->device;
    double at = now_ms();
    for (int i = 0; i < n; i++) {
        device->replay(device->user, call->device->sequence);
    }
    device->sync(device->user);
    at = now_ms() - at;
    tci_call_give(c->f, call);
    return at;
}

static double device_ms(bench_case *c)
{
    return (replays_ms(c, 21) - replays_ms(c, 1)) / 20;
}

/* ---- what a run costs the processor, microseconds ---- */

static tc_status wait_not(void *user)
{
    (void)user;
    return TC_OK;
}

typedef struct cpu_cost {
    double replay_us, run_us, total_us;
} cpu_cost;

/* replay: the one call of the driver. run: tc_run up to where it would wait. total: with that. */
static cpu_cost cost_of(bench_case *c)
{
    static double replay[MOST_RUNS], run[MOST_RUNS], total[MOST_RUNS];
    static tc_backend hurried;
    const tc_backend *device = c->f->code->device;
    hurried = *device;
    hurried.sync = wait_not;
    for (int i = 0; i < MOST_RUNS; i++) {
        total[i] = call_ms(c) * 1e3;
        tc_call *call = tci_call_take(c->f);
        double at = now_ms();
        device->replay(device->user, call->device->sequence);
        replay[i] = (now_ms() - at) * 1e3;
        device->sync(device->user);
        tci_call_give(c->f, call);
        c->f->code->device = &hurried;
        run[i] = call_ms(c) * 1e3;
        c->f->code->device = device;
        device->sync(device->user);
    }
    cpu_cost cost = {median(replay, MOST_RUNS), median(run, MOST_RUNS), median(total, MOST_RUNS)};
    return cost;
}

#ifdef BENCH_SHARED

/* ---- for bench/cuda_peers.py ---- */

int bench_cuda_begin(void);
int bench_cuda_begin(void)
{
    return begin() ? N_CASES : 0;
}
const char *bench_cuda_error(void);
const char *bench_cuda_error(void)
{
    return said;
}
const char *bench_cuda_name(int i);
const char *bench_cuda_name(int i)
{
    return cases[i].name;
}
int64_t bench_cuda_size(int i, int output);
int64_t bench_cuda_size(int i, int output)
{
    return output ? cases[i].n_out : cases[i].n_in;
}
int bench_cuda_is_half(int i);
int bench_cuda_is_half(int i)
{
    return cases[i].dtype == TC_BF16;
}
int bench_cuda_open(int i, void *in, void *out);
int bench_cuda_open(int i, void *in, void *out)
{
    return open_case(&cases[i], in, out);
}
double bench_cuda_call(int i);
double bench_cuda_call(int i)
{
    return call_ms(&cases[i]);
}
double bench_cuda_device(int i);
double bench_cuda_device(int i)
{
    return device_ms(&cases[i]);
}
void bench_cuda_cost(int i, double *us);
void bench_cuda_cost(int i, double *us)
{
    cpu_cost cost = cost_of(&cases[i]);
    us[0] = cost.replay_us;
    us[1] = cost.run_us;
    us[2] = cost.total_us;
}

#else

/* ---- alone ---- */

/* Random numbers in [-1, 1), the same ones in each quarter; half: 2 n of bf16 instead of n. */
static void *device_array(int64_t n, bool half)
{
    void *memory = NULL;
    int64_t part = n / 4;
    float *host = (float *)malloc((size_t)part * sizeof(float));
    unsigned seed = 1;
    for (int64_t i = 0; i < part; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    for (int64_t i = 0; half && i < part; i++) {
        uint32_t low, high;
        memcpy(&low, &host[i], 4);
        memcpy(&high, &host[(i + 1) % part], 4);
        low = low >> 16 | (high & 0xffff0000u);
        memcpy(&host[i], &low, 4);
    }
    bool good = !tc_cuda_alloc(n * 4, &memory);
    for (int64_t at = 0; good && at < n; at += part) {
        good = !tc_cuda_copy((float *)memory + at, host, part * 4);
    }
    if (!good) {
        fprintf(stderr, "no device memory\n");
        exit(1);
    }
    free(host);
    return memory;
}

static double copy_ms(const void *from, void *to, int64_t n)
{
    double ms[RUNS];
    for (int i = -3; i < RUNS; i++) {
        double at = now_ms();
        tc_cuda_copy(to, from, n * 4);
        ms[i < 0 ? 0 : i] = now_ms() - at;
    }
    return median(ms, RUNS);
}

static void row(bench_case *c, void *in, void *out)
{
    double calls[RUNS], devices[RUNS];
    if (!open_case(c, in, out)) {
        printf("%-28s %s\n", c->name, said);
        return;
    }
    for (int i = -3; i < RUNS; i++) {
        calls[i < 0 ? 0 : i] = call_ms(c);
        devices[i < 0 ? 0 : i] = device_ms(c);
    }
    double call = median(calls, RUNS), device = median(devices, RUNS);
    double bytes = (double)((c->n_in + c->n_out) * size_of(c));
    double copy = copy_ms(in, out, (int64_t)bytes / 8);
    printf("%-28s call %8.4f ms, %5.2f of copy; device %8.4f ms, %6.0f GB/s", c->name, call,
           copy / call, device, bytes / device * 1e-6);
    printf(c->flops > 0 ? ", %.0f GFLOP/s\n" : "\n", c->flops / device * 1e-6);
}

static bool is_mapped(const char *library)
{
    char line[1024];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof(line), file)) {
        found = found || strstr(line, library);
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static int start(double at)
{
    static float in[256 * 256], out[256 * 256];
    tc_program *f = NULL;
    tc_program_info info;
    double opened = now_ms();
    tc_tensor y = tc_softmax(tc_input(context, "x", TC_F32, 256, 256), -1);
    if (tc_compile(y, &f) || tc_program_get_info(f, &info)) {
        printf("start: %s\n", tc_error(y));
        return 1;
    }
    double compiled = now_ms();
    if (tc_run(f, TC_BUFS(TC_BUF(in, 65536)), TC_BUFS(TC_BUF(out, 65536)))) {
        printf("start: %s\n", tc_error(f));
        return 1;
    }
    printf("start: device %.1f ms, program %.1f ms %s, run %.1f ms; NVRTC is %sloaded\n",
           opened - at, compiled - opened, info.from_disk ? "from disk" : "compiled",
           now_ms() - compiled, is_mapped("libnvrtc") ? "" : "not ");
    return 0;
}

int main(int argc, char **argv)
{
    double at = now_ms();
    if (!begin()) {
        printf("cuda: skipped, no GPU works here\n");
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "--start")) {
        return start(at);
    }
    void *in = device_array(4 * M64, false), *out = device_array(4 * M64, false);
    void *halves = device_array(2 * M64, true);
    for (int i = 0; i < N_CASES; i++) {
        if (argc < 2 || strstr(cases[i].name, argv[1])) {
            row(&cases[i], cases[i].dtype == TC_BF16 ? halves : in, out);
        }
    }
    if (argc > 1) {
        return 0;
    }
    cpu_cost cost = cost_of(&cases[N_CASES - 1]);
    printf("%s: a run costs the processor %.2f us, %.2f of them the launch; with the wait %.2f\n",
           cases[N_CASES - 1].name, cost.run_us, cost.replay_us, cost.total_us);
    tc_ctx_free(context);
    return 0;
}

#endif
