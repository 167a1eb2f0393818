/* bench/overhead.c - what tc costs beside the work: a run, a rebuild, the pipeline, a long loop.
 *
 * Memory of the process is counted through TC_MALLOC. The pipeline is timed with a backend whose
 * compiler does nothing, so that every stage up to the source text runs and no process starts. */
#define _GNU_SOURCE
#include <stdlib.h>

static long long bench_blocks;
static void *bench_malloc(size_t bytes)
{
    __atomic_add_fetch(&bench_blocks, 1, __ATOMIC_RELAXED);
    return malloc(bytes);
}
static void *bench_realloc(void *p, size_t bytes)
{
    __atomic_add_fetch(&bench_blocks, 1, __ATOMIC_RELAXED);
    return realloc(p, bytes);
}

#define TC_MALLOC bench_malloc
#define TC_REALLOC bench_realloc
#define TC_FREE free
#define TC_IMPLEMENTATION
#include "tc.h"

#include <pthread.h>
#include <unistd.h>

#include "bench.h"

static tc_ctx *make_context(const char *backend)
{
    tc_options o;
    tc_ctx *ctx;
    memset(&o, 0, sizeof(o));
    o.threads = 1;
    o.backend = backend;
    o.no_disk_cache = true;
    if (tc_ctx_make(&ctx, &o)) {
        fprintf(stderr, "no context for backend %s\n", backend ? backend : "(any)");
        exit(1);
    }
    return ctx;
}

/* ---- a run ---- */

enum { SMALL = 8 };
static float small_in[SMALL], small_out[SMALL];

static void run_small(void *arg)
{
    tc_program *f = arg;
    if (tc_run(f, TC_BUFS(TC_BUF(small_in, SMALL)), TC_BUFS(TC_BUF(small_out, SMALL)))) {
        fprintf(stderr, "%s\n", tc_error(f));
        exit(1);
    }
}

/* What a C programmer would have written, through a pointer as a library's function is called. */
static void by_hand(float *out, const float *in)
{
    for (int i = 0; i < SMALL; i++) {
        out[i] = in[i] * 0.25f + 1.0f;
    }
}
static void (*volatile by_hand_pointer)(float *out, const float *in) = by_hand;

static void run_by_hand(void *arg)
{
    (void)arg;
    by_hand_pointer(small_out, small_in);
    BENCH_USE(small_out);
}

static void bench_run(void)
{
    tc_ctx *ctx = make_context(NULL);
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, SMALL);
    tc_tensor y = tc_add(tc_mul(x, 0.25), 1);
    if (tc_compile(y, &f)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
    bench_side sides[] = {{.name = "tc_run", .run = run_small, .arg = f},
                          {.name = "by hand", .run = run_by_hand}};
    bench_measure(sides, 2, 41, 2);
    bench_row("tc_run of 8 elements", sides[0].best_ns, "ns", BENCH_AT_MOST, 150);
    bench_row("tc_run of 8 elements: the aim", sides[0].best_ns, "ns", BENCH_AT_MOST, 50);
    bench_row("the same by hand through a pointer", sides[1].best_ns, "ns", BENCH_INFO, 0);
    long long before = bench_blocks;
    for (int i = 0; i < 100000; i++) {
        run_small(f);
    }
    bench_row("allocations of 100,000 runs", (double)(bench_blocks - before), "", BENCH_AT_MOST, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- the same while a profile records ---- */

static void mark_pair(void *arg)
{
    (void)arg;
    tc_mark_begin("a mark");
    tc_mark_end();
}

/* A record of the size of all others, with times that are known: what the profile itself costs. */
static void one_record(void *arg)
{
    tci_profile_add(TCI_RECORD_KERNEL, arg, 0, 1, 2);
}

static double best_ns(void (*run)(void *arg), void *arg)
{
    bench_side side = {.name = "", .run = run, .arg = arg};
    bench_measure(&side, 1, 41, 2);
    return side.best_ns;
}

/* Off costs nothing: tc_run above and a mark here. On, a run writes two records, as a mark does. */
static void bench_profile(void)
{
    tc_ctx *ctx = make_context(NULL);
    tc_program *f;
    tc_profile *p;
    tc_tensor y = tc_add(tc_mul(tc_input(ctx, "x", TC_F32, SMALL), 0.25), 1);
    if (tc_compile(y, &f)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
    double run_off = best_ns(run_small, f), mark_off = best_ns(mark_pair, NULL);
    if (tc_profile_begin(NULL, &p)) {
        exit(1);
    }
    double run_on = best_ns(run_small, f), mark_on = best_ns(mark_pair, NULL);
    double record = best_ns(one_record, f);
    tc_profile_end(p);
    tc_profile_free(p);
    bench_row("a record of a profile", record, "ns", BENCH_AT_MOST, 60);
    bench_row("a mark without a profile", mark_off, "ns", BENCH_AT_MOST, 10);
    bench_row("a mark while a profile records", mark_on, "ns", BENCH_AT_MOST, 120);
    bench_row("a profile adds to a run of one kernel", run_on - run_off, "ns", BENCH_AT_MOST, 180);
    bench_row("the same for each of its two records", (run_on - run_off) / 2, "ns", BENCH_AT_MOST,
              60);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- many threads on one program ---- */

typedef struct runner {
    pthread_t thread;
    tc_program *program;
    int runs;
} runner;

static void *run_many(void *arg)
{
    runner *r = arg;
    float in[SMALL] = {0}, out[SMALL];
    for (int i = 0; i < r->runs; i++) {
        if (tc_run(r->program, TC_BUFS(TC_BUF(in, SMALL)), TC_BUFS(TC_BUF(out, SMALL)))) {
            exit(1);
        }
    }
    return NULL;
}

static double time_runners(tc_program *f, int n)
{
    enum { RUNS = 100000 };
    runner runners[4];
    double begin = bench_now_ns();
    for (int i = 0; i < n; i++) {
        runners[i].program = f;
        runners[i].runs = RUNS;
        if (pthread_create(&runners[i].thread, NULL, run_many, &runners[i])) {
            exit(1);
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(runners[i].thread, NULL);
    }
    return (bench_now_ns() - begin) / RUNS;
}

static void bench_threads(void)
{
    tc_ctx *ctx = make_context(NULL);
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, SMALL);
    if (tc_compile(tc_add(tc_mul(x, 0.25), 1), &f)) {
        exit(1);
    }
    double one = time_runners(f, 1);
    double two = time_runners(f, 2);
    bench_row("one program, 1 thread: a run each", one, "ns", BENCH_INFO, 0);
    bench_row("one program, 2 threads: a run each", two, "ns", BENCH_INFO, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- the lazy form ---- */

static tc_tensor ten_ops(tc_tensor x)
{
    tc_tensor y = tc_mul(tc_add(x, 1.5), x);          /* 2 */
    tc_tensor z = tc_maximum(tc_sub(y, 0.25), 0.125); /* 4 */
    z = tc_sqrt(tc_add(tc_mul(z, z), y));             /* 7 */
    return tc_neg(tc_div(tc_abs(z), 3));              /* 10 */
}

typedef struct lazy {
    tc_ctx *ctx;
    tc_tensor x;
} lazy;

static void rebuild_and_eval(void *arg)
{
    lazy *l = arg;
    tc_scope_begin(l->ctx);
    if (tc_eval(ten_ops(l->x))) {
        fprintf(stderr, "%s\n", tc_error(l->ctx));
        exit(1);
    }
    tc_scope_end(l->ctx);
}

static void bench_lazy(void)
{
    lazy l = {.ctx = make_context(NULL)};
    l.x = tc_copy_in(l.ctx, small_in, TC_F32, SMALL);
    bench_side side = {.name = "eval", .run = rebuild_and_eval, .arg = &l};
    bench_measure(&side, 1, 41, 2);
    bench_row("rebuild and tc_eval of 10 ops", side.best_ns / 1e3, "us", BENCH_AT_MOST, 5);
    tc_ctx_free(l.ctx);
}

/* ---- memory of a long loop ---- */

static long resident_kb(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%ld %ld", &all, &pages) != 2) {
            pages = 0;
        }
        fclose(f);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void bench_loop(void)
{
    enum { WARM = 10000, STEPS = 1000000 };
    tc_ctx *ctx = make_context(NULL);
    tc_tensor x = tc_copy_in(ctx, small_in, TC_F32, SMALL);
    long before = 0;
    double begin = 0;
    for (int i = 0; i < WARM + STEPS; i++) {
        if (i == WARM) {
            before = resident_kb();
            begin = bench_now_ns();
        }
        tc_scope_begin(ctx);
        x = tc_keep(tc_mul(tc_add(x, (double)i), 0.5));
        tc_scope_end(ctx);
    }
    double ns = (bench_now_ns() - begin) / STEPS;
    if (tc_status_of(x) != TC_OK) {
        fprintf(stderr, "%s\n", tc_error(x));
        exit(1);
    }
    if (before) {
        bench_row("1,000,000 kept steps: memory grows by", (double)(resident_kb() - before), "KiB",
                  BENCH_AT_MOST, 256);
    } else {
        bench_skip("1,000,000 kept steps", "no /proc");
    }
    bench_row("a step of that loop", ns / 1e3, "us", BENCH_INFO, 0);
    tc_ctx_free(ctx);
}

/* ---- the pipeline without a compiler ---- */

static tc_status idle_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user;
    (void)vector_bits;
    strcpy(target->features, "avx2,fma,f16c vector=32");
    target->vector_bytes = 32;
    target->usable = true;
    return TC_OK;
}

static tc_status idle_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    (void)wanted;
    strcpy(compiler->path, "/nonexistent/idle");
    compiler->vector_bytes = 64;
    return TC_OK;
}

static size_t idle_source_bytes;

static tc_status idle_compile(void *user, tc_build *build)
{
    (void)user;
    for (int i = 0; i < build->n; i++) {
        FILE *f = fopen(build->outputs[i], "wb");
        idle_source_bytes += strlen(build->sources[i]);
        if (!f || fputs("idle", f) < 0 || fclose(f)) {
            return TC_ERR_IO;
        }
    }
    return TC_OK;
}

static tc_status idle_load(void *user, const void *bytes, size_t n, const char *path, void **module)
{
    (void)bytes;
    (void)n;
    (void)path;
    *module = user;
    return TC_OK;
}

static void *idle_find(void *user, void *module, const char *symbol)
{
    (void)module;
    (void)symbol;
    return user;
}

static void idle_free(void *user, void *module)
{
    (void)user;
    (void)module;
}

static int idle_user;
static const tc_backend idle_backend = {.name = "idle",
                                        .dialect = "c",
                                        .user = &idle_user,
                                        .target = idle_target,
                                        .compiler = idle_compiler,
                                        .compile = idle_compile,
                                        .module_load = idle_load,
                                        .module_find = idle_find,
                                        .module_free = idle_free};

/* One chain: a row of kernels, each as large as a kernel may be. */
static tc_tensor grow_chain(tc_tensor x, int n)
{
    tc_tensor y = x;
    for (int i = 0; i < n; i += 2) {
        y = tc_add(tc_mul(y, x), i + 3);
    }
    return y;
}

/* Rounds of a reduction and what depends on it: many kernels in a row. */
static tc_tensor grow_rounds(tc_tensor x, int n)
{
    tc_tensor y = x;
    for (int i = 0; i < n; i += 5) {
        y = tc_mul(tc_sub(y, tc_mean(y, TC_AXES(-1), 1)), tc_add(tc_exp(x), i + 3));
    }
    return y;
}

/* Columns cut out of x and added up: movement everywhere. */
static tc_tensor grow_slices(tc_tensor x, int n)
{
    tc_tensor y = tc_slice(x, 1, 0, 8, 1);
    for (int i = 0; i < n; i += 3) {
        y = tc_add(tc_flip(y, 1), tc_slice(x, 1, i % 56, i % 56 + 8, 1));
    }
    return y;
}

/* Many small results of one program. */
static int grow_outputs(tc_tensor x, int n, tc_tensor *outputs)
{
    int count = 0;
    for (int i = 0; i < n; i += 4) {
        outputs[count++] = tc_sum(tc_mul(tc_add(x, i + 3), tc_add(x, i + 4)), TC_AXES(i % 2), 0);
    }
    return count;
}

typedef tc_tensor (*grow_shape)(tc_tensor x, int n);

/* Seconds from the first node to the program; shape NULL: grow_outputs. */
static double time_pipeline(grow_shape shape, int n)
{
    tc_ctx *ctx = make_context("idle");
    tc_program *f;
    tc_tensor *outputs = malloc(sizeof(*outputs) * (size_t)n);
    double begin = bench_now_ns();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64);
    int n_outputs = 1;
    if (shape) {
        outputs[0] = shape(x, n);
    } else {
        n_outputs = grow_outputs(x, n, outputs);
    }
    tc_tensors ins = {&x, 1};
    tc_tensors outs = {outputs, n_outputs};
    if (tc_compile_fn(ins, outs, NULL, &f)) {
        fprintf(stderr, "%s\n", tc_error(outputs[0]));
        exit(1);
    }
    double seconds = (bench_now_ns() - begin) / 1e9;
    tc_program_free(f);
    tc_ctx_free(ctx);
    free(outputs);
    tc_shutdown(); /* so that nothing is found in memory the next time */
    return seconds;
}

static void bench_pipeline(void)
{
    static const struct {
        const char *name;
        grow_shape shape;
    } shapes[] = {{"a chain", grow_chain},
                  {"reductions in a row", grow_rounds},
                  {"slices", grow_slices},
                  {"outputs", NULL}};
    tc_register_backend(&idle_backend);
    for (int i = 0; i < (int)(sizeof(shapes) / sizeof(shapes[0])); i++) {
        enum { ROUNDS = 5 };
        double small[ROUNDS], large[ROUNDS], ratios[ROUNDS];
        char text[80];
        for (int k = 0; k < ROUNDS; k++) {
            small[k] = time_pipeline(shapes[i].shape, 1000);
            large[k] = time_pipeline(shapes[i].shape, 10000);
            ratios[k] = large[k] / small[k];
        }
        snprintf(text, sizeof(text), "%s: 10,000 nodes against 1,000", shapes[i].name);
        bench_row(text, bench_median(ratios, ROUNDS), "times", BENCH_AT_MOST, 12);
        snprintf(text, sizeof(text), "%s: 10,000 nodes", shapes[i].name);
        bench_row(text, bench_least(large, ROUNDS), "s", BENCH_AT_MOST, 1);
    }
}

/* ---- loops of little work, each against plain C in the same process ---- */

enum { STEPS = 100000, COUNTS = 300000, CELL = 16, CELL_STEPS = 2000 };
static float loop_in[STEPS], loop_out[STEPS], loop_w[CELL * CELL], loop_last[4];

static tc_status biquad(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                        tc_tensor *y)
{
    (void)user;
    y[0] = tc_add(tc_mul(x[0], 0.2f), c[0]);
    next[0] = tc_add(tc_sub(tc_mul(x[0], 0.4f), tc_mul(y[0], -0.3f)), c[1]);
    next[1] = tc_sub(tc_mul(x[0], 0.2f), tc_mul(y[0], 0.2f));
    return TC_OK;
}

__attribute__((noinline)) static void plain_biquad(const float *x, float *y)
{
    float a = 0, b = 0;
    for (int i = 0; i < STEPS; i++) {
        float v = 0.2f * x[i] + a;
        a = 0.4f * x[i] - -0.3f * v + b;
        b = 0.2f * x[i] - 0.2f * v;
        y[i] = v;
    }
}

static tc_status counts_on(void *user, const tc_tensor *c, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(c[0], (float)COUNTS);
    return TC_OK;
}

static tc_status count_one(void *user, const tc_tensor *c, tc_tensor *next)
{
    (void)user;
    next[0] = tc_add(c[0], 1);
    next[1] = tc_add(tc_mul(c[1], 0.999), 0.5);
    return TC_OK;
}

__attribute__((noinline)) static float plain_count(float most)
{
    float i = 0, v = 0;
    for (; i < most; i += 1) {
        v = v * 0.999f + 0.5f;
    }
    return v;
}

static tc_status cell(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    (void)y;
    next[0] = tc_maximum(tc_add(tc_matmul(*(const tc_tensor *)user, c[0]), x[0]), 0);
    return TC_OK;
}

__attribute__((noinline)) static void plain_cell(const float *w, const float *x, float *h)
{
    for (int t = 0; t < CELL_STEPS; t++) {
        float sum[CELL];
        for (int i = 0; i < CELL; i++) {
            sum[i] = 0;
            for (int k = 0; k < CELL; k++) {
                sum[i] += w[i * CELL + k] * h[k];
            }
        }
        for (int i = 0; i < CELL; i++) {
            h[i] = sum[i] + x[t * CELL + i] > 0 ? sum[i] + x[t * CELL + i] : 0;
        }
    }
}

typedef struct small_loop {
    const char *name;
    tc_program *f;
    tc_bufs in, out;
    double steps, most;
} small_loop;

static void run_plain_loop(int which)
{
    if (which == 0) {
        plain_biquad(loop_in, loop_out);
    } else if (which == 1) {
        loop_last[0] = plain_count((float)COUNTS);
    } else {
        memset(loop_last, 0, sizeof(loop_last));
        float h[CELL] = {0};
        plain_cell(loop_w, loop_in, h);
        loop_last[0] = h[0];
    }
}

/* Times of both, in turns: the least of many. */
static void time_small_loop(const small_loop *l, int which)
{
    enum { ROUNDS = 60 };
    double ours[ROUNDS], plain[ROUNDS];
    char text[80];
    for (int i = 0; i < ROUNDS; i++) {
        double begin = bench_now_ns();
        if (tc_run(l->f, l->in, l->out)) {
            fprintf(stderr, "%s\n", tc_error(l->f));
            exit(1);
        }
        double middle = bench_now_ns();
        run_plain_loop(which);
        ours[i] = (middle - begin) / l->steps;
        plain[i] = (bench_now_ns() - middle) / l->steps;
    }
    snprintf(text, sizeof(text), "%s: a step", l->name);
    bench_row(text, bench_least(ours, ROUNDS), "ns", BENCH_INFO, 0);
    snprintf(text, sizeof(text), "%s: against plain C", l->name);
    bench_row(text, bench_least(ours, ROUNDS) / bench_least(plain, ROUNDS), "times", BENCH_AT_MOST,
              l->most);
}

static void bench_small_loops(void)
{
    tc_ctx *ctx = make_context(NULL);
    tc_tensor x = tc_input(ctx, "x", TC_F32, STEPS), zero = tc_full(ctx, 0, TC_F32), y, last[2];
    tc_tensor w = tc_input(ctx, "w", TC_F32, CELL, CELL), h;
    tc_tensor xs = tc_input(ctx, "xs", TC_F32, CELL_STEPS, CELL);
    small_loop loops[3] = {{.name = "a filter by tc_scan", .steps = STEPS, .most = 1.3},
                           {.name = "tc_while of scalars", .steps = COUNTS, .most = 1.3},
                           {.name = "a cell of 16 by tc_scan", .steps = CELL_STEPS, .most = 1.3}};
    for (int i = 0; i < STEPS; i++) {
        loop_in[i] = (float)(i % 17) / 17;
        loop_w[i % (CELL * CELL)] = (float)(i % 13) / 100 - 0.05f;
    }
    tc_status status = tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, biquad, NULL, NULL,
                               &y, 1);
    status = status ? status : tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), NULL, &loops[0].f);
    loops[0].in = TC_BUFS(TC_BUF(loop_in, STEPS));
    loops[0].out = TC_BUFS(TC_BUF(loop_out, STEPS));
    status = status ? status
                    : tc_while(TC_TENSORS(zero, zero), 0, counts_on, count_one, NULL, last);
    status = status ? status
                    : tc_compile_fn((tc_tensors){0}, TC_TENSORS(last[1]), NULL, &loops[1].f);
    loops[1].out = TC_BUFS(TC_BUF(loop_last, 1));
    status = status ? status
                    : tc_scan(TC_TENSORS(tc_full(ctx, 0, TC_F32, CELL)), TC_TENSORS(xs), 0, false,
                              cell, &w, &h, NULL, 0);
    status = status ? status
                    : tc_compile_fn(TC_TENSORS(xs, w), TC_TENSORS(tc_slice(h, 0, 0, 1, 1)), NULL,
                                    &loops[2].f);
    loops[2].in = TC_BUFS(TC_BUF(loop_in, CELL_STEPS * CELL), TC_BUF(loop_w, CELL * CELL));
    loops[2].out = TC_BUFS(TC_BUF(loop_last, 1));
    if (status) {
        fprintf(stderr, "%s\n", tc_ctx_error(ctx));
        exit(1);
    }
    for (int i = 0; i < 3; i++) {
        time_small_loop(&loops[i], i);
        tc_program_free(loops[i].f);
    }
    tc_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv, "overhead");
    bench_run();
    bench_profile();
    bench_threads();
    bench_lazy();
    bench_loop();
    bench_small_loops();
    bench_pipeline();
    return bench_end();
}
