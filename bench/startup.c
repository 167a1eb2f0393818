/* bench/startup.c - how long until a program computes: cold (nothing cached) and warm (disk cache);
 * and what it takes to compile graphs that are large.
 *
 * Every figure is of a fresh process: the program starts itself again with --child KIND, which
 * builds one graph, compiles and runs it once, and prints what that took. Caches lie in a directory
 * of their own that is removed at the end. The bare compiler command is the one that tc itself used
 * on the same source, as its dump tells it. */
#define _GNU_SOURCE
#define TC_IMPLEMENTATION
#include "tc.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { N = 10000, MOST_KERNELS = 200, MOST_ARGS = 64, LONG = 10000, LEAVES = 3000, STEPS = 100 };

static char directory[256], cache[300], self[4096];

static void give_up(const char *what)
{
    fprintf(stderr, "startup: %s\n", what);
    exit(1);
}

/* ---- the child ---- */

static float in[N], other[N], out[N];

static int build_sincos(tc_ctx *ctx, tc_tensor *inputs, tc_tensor *outputs)
{
    inputs[0] = tc_input(ctx, "x", TC_F32, N);
    outputs[0] = tc_sin(tc_cos(inputs[0]));
    return 1;
}

static int build_three_ops(tc_ctx *ctx, tc_tensor *inputs, tc_tensor *outputs)
{
    inputs[0] = tc_input(ctx, "x", TC_F32, N);
    outputs[0] = tc_neg(tc_mul(tc_add(inputs[0], 1.5), inputs[0]));
    return 1;
}

/* Kernels that have nothing in common: each has its own size. */
static int build_kernels(tc_ctx *ctx, int n, tc_tensor *inputs, tc_tensor *outputs)
{
    for (int i = 0; i < n; i++) {
        inputs[i] = tc_input(ctx, "x", TC_F32, 17 + i);
        outputs[i] = tc_sum(tc_mul(tc_add(inputs[i], 1.5), inputs[i]), TC_ALL, 0);
    }
    return n;
}

/* ---- graphs that are large: one number is how large ---- */

static int build_chain(tc_ctx *ctx, tc_tensor *inputs, tc_tensor *outputs)
{
    tc_tensor x = inputs[0] = tc_input(ctx, "x", TC_F32, N), y = x;
    for (int i = 0; i < LONG; i++) {
        y = i % 3 == 0 ? tc_add(y, 1.5) : i % 3 == 1 ? tc_mul(y, x) : tc_sin(y);
    }
    outputs[0] = y;
    return 1;
}

/* Each op reads two of the twenty before it. */
static int build_branches(tc_ctx *ctx, tc_tensor *inputs, tc_tensor *outputs)
{
    static tc_tensor v[LONG + 1];
    unsigned draw = 1;
    v[0] = inputs[0] = tc_input(ctx, "x", TC_F32, N);
    for (int i = 1; i <= LONG; i++) {
        draw = draw * 1664525u + 1013904223u;
        int back = 1 + (int)((draw >> 10) % 20);
        tc_tensor from = v[i > back ? i - back : 0];
        v[i] = i % 2 ? tc_add(v[i - 1], from) : tc_mul(v[i - 1], tc_sub(from, 0.5));
    }
    outputs[0] = v[LONG];
    return 1;
}

static int build_leaves(tc_ctx *ctx, tc_tensor *inputs, tc_tensor *outputs)
{
    tc_tensor y = inputs[0] = tc_input(ctx, "x", TC_F32, 1000);
    for (int i = 0; i < LEAVES; i++) {
        y = tc_add(y, tc_copy_in(ctx, other + i, TC_F32, 1000));
    }
    outputs[0] = y;
    return 1;
}

static tc_tensor gate(tc_tensor z, int i)
{
    int64_t n = tc_size(z, 1) / 4;
    return tc_slice(z, 1, i * n, (i + 1) * n, 1);
}

/* The last state of an LSTM over the steps of its input; or its gradients by the weights. */
static int build_lstm(tc_ctx *ctx, tc_tensor *inputs, tc_tensor *outputs, bool grad)
{
    enum { ROWS = 16, WIDE = 64 };
    tc_tensor x = inputs[0] = tc_input(ctx, "x", TC_F32, STEPS, ROWS, WIDE);
    tc_tensor u = tc_full(ctx, 0.1, TC_F32, WIDE, 4 * WIDE), w = tc_mul(u, 0.5);
    tc_tensor h = tc_full(ctx, 0, TC_F32, ROWS, WIDE), c = h, params[] = {u, w};
    for (int t = 0; t < STEPS; t++) {
        tc_tensor now = tc_reshape(tc_slice(x, 0, t, t + 1, 1), ROWS, WIDE);
        tc_tensor z = tc_add(tc_matmul(now, u), tc_matmul(h, w));
        c = tc_add(tc_mul(tc_sigmoid(gate(z, 0)), c),
                   tc_mul(tc_sigmoid(gate(z, 1)), tc_tanh(gate(z, 2))));
        h = tc_mul(tc_sigmoid(gate(z, 3)), tc_tanh(c));
    }
    outputs[0] = tc_sum(h, TC_ALL, false);
    if (grad && tc_grad(outputs[0], params, 2, outputs + 1)) {
        return 0;
    }
    return grad ? 3 : 1;
}

/* Prints: nanoseconds to the compiled program, of processor time until then, and the megabytes of
 * the largest process that compiled. */
static int run_large(const char *kind)
{
    static tc_tensor inputs[1], outputs[3];
    struct rusage own, others;
    double begin = bench_now_ns();
    tc_ctx *ctx;
    tc_program *f;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    int n = !strcmp(kind, "chain")      ? build_chain(ctx, inputs, outputs)
            : !strcmp(kind, "branches") ? build_branches(ctx, inputs, outputs)
            : !strcmp(kind, "leaves")   ? build_leaves(ctx, inputs, outputs)
                                        : build_lstm(ctx, inputs, outputs, !strcmp(kind, "grad"));
    tc_tensors ins = {inputs, 1}, outs = {outputs, n};
    if (tc_compile_fn(ins, outs, NULL, &f)) {
        fprintf(stderr, "%s\n", tc_error(ctx));
        return 1;
    }
    double ns = bench_now_ns() - begin;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &others);
    double seconds = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec + others.ru_utime.tv_sec +
                              others.ru_stime.tv_sec);
    double us = (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec + others.ru_utime.tv_usec +
                         others.ru_stime.tv_usec);
    printf("%.0f %.0f %.0f\n", ns, seconds * 1e9 + us * 1e3, (double)others.ru_maxrss / 1024);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return 0;
}

/* Prints: nanoseconds to the compiled program, to the end of the first run, in the compiler;
 * compiler processes, kernels, found on disk. */
static int run_child(const char *kind)
{
    static tc_tensor inputs[MOST_KERNELS], outputs[MOST_KERNELS];
    static tc_buf in_bufs[MOST_KERNELS], out_bufs[MOST_KERNELS];
    double begin = bench_now_ns();
    tc_ctx *ctx;
    tc_program *f;
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.threads = 1;
    if (tc_ctx_make(&ctx, &o)) {
        return 1;
    }
    int n = !strcmp(kind, "sincos")     ? build_sincos(ctx, inputs, outputs)
            : !strcmp(kind, "threeops") ? build_three_ops(ctx, inputs, outputs)
                                        : build_kernels(ctx, atoi(kind), inputs, outputs);
    tc_tensors ins = {inputs, n};
    tc_tensors outs = {outputs, n};
    if (tc_compile_fn(ins, outs, NULL, &f)) {
        fprintf(stderr, "%s\n", tc_error(outputs[0]));
        return 1;
    }
    double compiled = bench_now_ns();
    for (int i = 0; i < n; i++) {
        in_bufs[i] = TC_BUF(n > 1 ? other : in, tc_count(inputs[i]));
        out_bufs[i] = TC_BUF(out + (n > 1 ? 16 * i : 0), tc_count(outputs[i]));
    }
    tc_bufs in_list = {in_bufs, n};
    tc_bufs out_list = {out_bufs, n};
    if (tc_run(f, in_list, out_list)) {
        fprintf(stderr, "%s\n", tc_error(f));
        return 1;
    }
    double end = bench_now_ns();
    tc_stats stats;
    tc_times times;
    tc_program_info info;
    tc_stats(ctx, &stats);
    tc_compile_times(f, &times);
    tc_program_get_info(f, &info);
    printf("%.0f %.0f %.0f %d %d %d\n", compiled - begin, end - begin, (double)times.compiler,
           (int)stats.compiler_runs, info.n_kernels, info.from_disk);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return 0;
}

/* ---- processes ---- */

/* Runs it with stdout into text (room bytes, ends in NUL). Returns nanoseconds from start to end.
 */
static double run_process(char *const *argv, char *text, size_t room)
{
    int ends[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    size_t n = 0;
    if (pipe(ends) || fcntl(ends[0], F_SETFD, FD_CLOEXEC)) {
        give_up("no pipe");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    double begin = bench_now_ns();
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ)) {
        give_up("a process cannot be started");
    }
    close(ends[1]);
    for (;;) {
        ssize_t got = read(ends[0], text + n, room - 1 - n);
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
    }
    int status = 1;
    waitpid(pid, &status, 0);
    double ns = bench_now_ns() - begin;
    text[n] = 0;
    close(ends[0]);
    posix_spawn_file_actions_destroy(&actions);
    if (status) {
        give_up("a process failed");
    }
    return ns;
}

typedef struct child {
    double process_ns, compiled_ns, first_run_ns, compiler_ns;
    int compiler_runs, n_kernels, from_disk;
} child;

static child run_kind(const char *kind)
{
    char text[256], option[] = "--child", name[32];
    child c;
    snprintf(name, sizeof(name), "%s", kind);
    char *argv[] = {self, option, name, NULL};
    c.process_ns = run_process(argv, text, sizeof(text));
    if (sscanf(text, "%lf %lf %lf %d %d %d", &c.compiled_ns, &c.first_run_ns, &c.compiler_ns,
               &c.compiler_runs, &c.n_kernels, &c.from_disk) != 6) {
        give_up("a child did not report");
    }
    return c;
}

static void remove_folder(const char *path)
{
    char command[400];
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command)) {
        give_up("a directory cannot be removed");
    }
}

static child run_cold(const char *kind)
{
    remove_folder(cache);
    return run_kind(kind);
}

/* ---- the bare compiler command ---- */

typedef struct command {
    char text[4096];
    char source[512], object[512];
    char *argv[MOST_ARGS + 1];
} command;

/* The command of that kind, from the log that its dump holds, on the source of the same dump. */
static void find_command(command *c, const char *kind)
{
    char dump[300], path[400];
    snprintf(dump, sizeof(dump), "%s/dump-%s", directory, kind);
    setenv("TC_DUMP", "source", 1);
    setenv("TC_DUMP_DIR", dump, 1);
    run_cold(kind);
    unsetenv("TC_DUMP");
    unsetenv("TC_DUMP_DIR");
    snprintf(path, sizeof(path), "%s/build.log", dump);
    snprintf(c->source, sizeof(c->source), "%s/source.c", dump);
    snprintf(c->object, sizeof(c->object), "%s/bare.so", dump);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(c->text, sizeof(c->text), f)) {
        give_up("no log of a build");
    }
    fclose(f);
    int n = 0;
    for (char *arg = strtok(c->text, " \n"); arg && n < MOST_ARGS; arg = strtok(NULL, " \n")) {
        size_t length = strlen(arg);
        bool is_path = arg[0] == '/' && n > 0;
        c->argv[n++] = !is_path                                         ? arg
                       : length > 2 && !strcmp(arg + length - 2, ".c")  ? c->source
                       : length > 3 && !strcmp(arg + length - 3, ".so") ? c->object
                                                                        : arg;
    }
    c->argv[n] = NULL;
}

static double run_command(command *c)
{
    char text[256];
    unlink(c->object);
    return run_process(c->argv, text, sizeof(text));
}

/* ---- the figures ---- */

enum { COLD_ROUNDS = 11, WARM_ROUNDS = 25 };

static void bench_cold(void)
{
    static command sincos, three;
    double process[COLD_ROUNDS], compile[COLD_ROUNDS], bare[COLD_ROUNDS], ratio[COLD_ROUNDS],
        whole_ratio[COLD_ROUNDS];
    find_command(&sincos, "sincos");
    find_command(&three, "threeops");
    for (int i = 0; i < COLD_ROUNDS; i++) {
        process[i] = run_cold("sincos").process_ns;
        bare[i] = run_command(&sincos);
        whole_ratio[i] = process[i] / bare[i];
        compile[i] = run_cold("threeops").compiled_ns;
        ratio[i] = compile[i] / run_command(&three);
    }
    bench_row("sin(cos(x)), whole process, cold", bench_least(process, COLD_ROUNDS) / 1e6, "ms",
              BENCH_AT_MOST, 45);
    bench_row("its bare compiler command", bench_least(bare, COLD_ROUNDS) / 1e6, "ms", BENCH_INFO,
              0);
    bench_row("that process against that command", bench_median(whole_ratio, COLD_ROUNDS), "times",
              BENCH_INFO, 0);
    bench_row("three ops: cold compile", bench_least(compile, COLD_ROUNDS) / 1e6, "ms", BENCH_INFO,
              0);
    bench_row("three ops: against the bare command", bench_median(ratio, COLD_ROUNDS), "times",
              BENCH_AT_MOST, 1.3);
}

static void bench_warm(const char *kind, const char *what, double target_ms)
{
    double process[WARM_ROUNDS], start[WARM_ROUNDS];
    char name[100];
    child cold = run_cold(kind);
    for (int i = 0; i < WARM_ROUNDS; i++) {
        child c = run_kind(kind);
        if (!c.from_disk || c.compiler_runs) {
            give_up("a warm start was not found on disk");
        }
        process[i] = c.process_ns;
        start[i] = c.first_run_ns;
    }
    snprintf(name, sizeof(name), "%s: context to first run, warm", what);
    bench_row(name, bench_least(start, WARM_ROUNDS) / 1e6, "ms", BENCH_AT_MOST, target_ms);
    if (cold.n_kernels == 1) {
        snprintf(name, sizeof(name), "%s, whole process, warm", what);
        bench_row(name, bench_least(process, WARM_ROUNDS) / 1e6, "ms", BENCH_AT_MOST, 2);
    } else {
        snprintf(name, sizeof(name), "%s: kernels", what);
        bench_row(name, cold.n_kernels, "", BENCH_INFO, 0);
    }
}

static void bench_many(void)
{
    child c = run_cold("50");
    bench_row("50 results, cold: kernels", c.n_kernels, "", BENCH_INFO, 0);
    bench_row("50 results, cold: compiler processes", c.compiler_runs, "", BENCH_AT_MOST, 2);
    bench_row("50 results, cold: of that the compiler", c.compiler_ns / 1e6, "ms", BENCH_INFO, 0);
    bench_row("50 results, cold: the rest", (c.compiled_ns - c.compiler_ns) / 1e6, "ms", BENCH_INFO,
              0);
}

static void bench_large(const char *kind, const char *what)
{
    char option[] = "--large", name[32], text[256], row[100];
    double ns, work_ns, megabytes;
    snprintf(name, sizeof(name), "%s", kind);
    char *argv[] = {self, option, name, NULL};
    remove_folder(cache);
    run_process(argv, text, sizeof(text));
    if (sscanf(text, "%lf %lf %lf", &ns, &work_ns, &megabytes) != 3) {
        give_up("a child did not report");
    }
    snprintf(row, sizeof(row), "%s: cold compile", what);
    bench_row(row, ns / 1e9, "s", BENCH_INFO, 0);
    snprintf(row, sizeof(row), "%s: its processor time", what);
    bench_row(row, work_ns / 1e9, "s", BENCH_AT_MOST, 5);
    snprintf(row, sizeof(row), "%s: memory of the compiler", what);
    bench_row(row, megabytes, "MB", BENCH_AT_MOST, 256);
}

static void bench_size(void)
{
    struct stat st;
    char stripped[300], command_text[5000];
    snprintf(stripped, sizeof(stripped), "%s/stripped", directory);
    snprintf(command_text, sizeof(command_text), "strip -o '%s' '%s' 2>/dev/null", stripped, self);
    if (system(command_text) || stat(stripped, &st)) {
        bench_skip("this program, stripped", "no strip");
        return;
    }
    bench_row("this program, stripped", (double)st.st_size / 1000, "kB", BENCH_AT_MOST, 500);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--child")) {
        return run_child(argv[2]);
    }
    if (argc == 3 && !strcmp(argv[1], "--large")) {
        return run_large(argv[2]);
    }
    bench_begin(argc, argv, "startup");
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof(directory), "%.200s/tc-bench-XXXXXX", base && *base ? base : "/tmp");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0 || !mkdtemp(directory)) {
        give_up("needs /proc and a temporary directory");
    }
    snprintf(cache, sizeof(cache), "%s/cache", directory);
    setenv("TC_CACHE_DIR", cache, 1);
    bench_cold();
    bench_warm("sincos", "sin(cos(x))", 1);
    bench_warm("200", "200 results", 5);
    bench_many();
    bench_large("chain", "chain of 10,000 ops");
    bench_large("branches", "10,000 ops that branch");
    bench_large("leaves", "3,000 captured leaves");
    bench_large("lstm", "LSTM of 100 steps");
    bench_large("grad", "LSTM of 100 steps, gradient");
    bench_size();
    remove_folder(directory);
    return bench_end();
}
