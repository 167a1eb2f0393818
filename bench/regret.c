/* bench/regret.c - how much time is lost by trusting the model of schedules?
 *
 * Kernels of many kinds are compiled with options.tune_ms: the candidates that the model thinks
 * fastest run in turns, on one thread or on the device. The regret of a kernel is the time of the
 * model's choice over that of the fastest candidate; 1: the model was right. Kernels are layers of
 * networks, shapes of usual tests, cases of tests/data, and random graphs drawn as the fuzz test
 * draws them; a run of fewer takes some of each.
 *
 *     regret [KERNELS] [--backend NAME] [--workers N] [--seconds N] [--all] [--json]
 *
 * Default: 240 kernels of each backend that works here, of which the table has the worst ten
 * (--all: all); after so many seconds no more are begun. Most of the time goes to compilers, so as
 * many processes as half the processors share the programs; all that is not compiling is done by
 * one of them at a time, which thus measures alone. */
#define _GNU_SOURCE
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"

#define TCT_UNUSED
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function" /* what of it is not needed here */
#endif
#include "../tests/fuzz/draw.h"
#include "../tests/oracle_run.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#define CASES "tests/data/opinfo.json"

enum {
    MOST = 1000,
    WORKERS = 64,
    TUNE_MS = 1000000, /* waiting for the other workers is within it */
    WORST = 10,
    LAYERS = 176, /* programs of convolutions, rows and products */
    DRAWN = 2000
};

typedef struct regret {
    char name[240];
    double ratio;
} regret;

static regret found[MOST];
static int n_found, wanted = 240, shown = WORST;
static tc_ctx *ctx;

/* ---- workers ---- */

static int workers, worker; /* how many, and which this process is */
static int lock;            /* a file that the one who does not compile has locked */

static void take_turn(short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    while (fcntl(lock, F_SETLKW, &whole) && errno == EINTR) {
    }
}

/* ---- what is measured of a list of programs ---- */

static int list_at, list_every, list_most;
static double seconds = INFINITY, until; /* until: bench_now_ns */

/* About `share` kernels of the next n programs, among all workers. */
static void begin_list(int n, int share)
{
    list_at = 0;
    list_every = share < n ? n / TCI_MAX(share, 1) : 1;
    list_most = n_found + share / workers + (worker < share % workers);
}

/* Is the next program of the list this worker's? */
static bool is_next(void)
{
    int i = list_at++;
    bool mine = i % list_every == 0 && i / list_every % workers == worker;
    return mine && n_found < list_most && bench_now_ns() < until;
}

/* ---- the backend ---- */

static const tc_backend *timed; /* the backend that is measured */

static tc_status compile_beside_others(void *user, tc_build *build)
{
    take_turn(F_UNLCK);
    tc_status status = timed->compile(user, build);
    take_turn(F_WRLCK);
    return status;
}

/* The backend under another name, whose compiler others need not wait for. NULL: there is none. */
static const char *shared_backend(const char *name)
{
    static tc_backend copy;
    static char text[16];
    timed = !strcmp(name, "cuda") ? tci_cuda_backend() : tci_cpu_backend();
    copy = *timed;
    snprintf(text, sizeof(text), "%s turns", name);
    copy.name = text;
    copy.compile = compile_beside_others;
    return tc_register_backend(&copy) == TC_OK ? text : NULL;
}

/* ---- one program ---- */

/* What tc_explain says of every kernel that was measured:
 *       1. NAME: 2 stages, ...
 *         schedule HASH: FORM NUMBERS in ...; measured 1.2 us, the model's choice 1.3 us (FORM
 *         NUMBERS), of 5 */
static void read_explanation(const char *what, const char *text)
{
    char kernel[64] = "";
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        double best, model;
        char schedule[60], chosen[60];
        sscanf(line, " %*d. %63[a-zA-Z0-9_]:", kernel);
        const char *end = strchr(line, '\n'), *at = strstr(line, "; measured ");
        if (!at || (end && at > end) || n_found >= MOST ||
            sscanf(at, "; measured %lf us, the model's choice %lf us (%59[^)]", &best, &model,
                   chosen) != 3 ||
            sscanf(line, " schedule %*[0-9a-f]: %59[^,(]", schedule) != 1 || best <= 0) {
            continue;
        }
        char *in = strstr(schedule, " in ");
        if (in) {
            *in = 0;
        }
        regret *r = &found[n_found++];
        r->ratio = model / best;
        snprintf(r->name, sizeof(r->name), "%.40s, %.30s: %.4g us with %s; chosen: %s", what,
                 kernel, best, schedule, chosen);
    }
}

static void measure(const char *what, tc_tensor y)
{
    tc_program *f = NULL;
    char *text = NULL;
    size_t n = 0;
    if (tc_status_of(y) != TC_OK) {
        return;
    }
    take_turn(F_WRLCK);
    tc_status status = tc_compile(y, &f);
    take_turn(F_UNLCK);
    if (status) {
        return;
    }
    FILE *out = open_memstream(&text, &n);
    if (out) {
        tc_explain_as(f, out, &(tc_explain_options){.all = true});
        fclose(out);
        read_explanation(what, text);
        free(text);
    }
    tc_program_free(f);
}

static void layer(const char *what, tc_tensor y)
{
    if (is_next()) {
        measure(what, y);
    }
}

static const char *next_name(void)
{
    static int n;
    static char name[24];
    snprintf(name, sizeof(name), "x%d", n++);
    return name;
}

static tc_tensor in2(tc_dtype t, int64_t m, int64_t n)
{
    return tc_input(ctx, next_name(), t, m, n);
}

static tc_tensor in4(tc_dtype t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return tc_input(ctx, next_name(), t, a, b, c, d);
}

/* ---- layers of networks ---- */

static void products(void)
{
    static const int64_t shapes[][3] = {{1, 768, 768},    {8, 512, 2048},  {16, 4096, 1000},
                                        {32, 784, 512},   {64, 64, 64},    {128, 768, 3072},
                                        {128, 784, 512},  {197, 768, 768}, {256, 256, 256},
                                        {512, 512, 512},  {1000, 33, 47},  {1024, 64, 1024},
                                        {2048, 16, 2048}, {31, 1024, 257}, {512, 4096, 128},
                                        {100, 10000, 10}};
    static const tc_dtype types[] = {TC_F32, TC_F64, TC_BF16};
    char what[100];
    for (int t = 0; t < TCI_COUNT(types); t++) {
        for (int i = 0; i < TCI_COUNT(shapes); i++) {
            int64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
            tc_tensor a = in2(types[t], m, k), b = in2(types[t], k, n), c = in2(types[t], n, k);
            snprintf(what, sizeof(what), "%s %lldx%lldx%lld", tci_dtype_get(types[t])->name,
                     (long long)m, (long long)k, (long long)n);
            layer(what, tc_matmul(a, b));
            if (t == 0) {
                layer(what, tc_relu(tc_matmul(a, tc_transpose(c, 0, 1))));
            }
        }
    }
}

static void convolutions(void)
{
    static const int64_t layers[][6] = {/* batch, channels, side, filters, kernel, stride */
                                        {1, 3, 224, 64, 7, 2},   {4, 64, 56, 64, 3, 1},
                                        {4, 64, 56, 256, 1, 1},  {4, 128, 28, 128, 3, 1},
                                        {8, 256, 14, 256, 3, 1}, {8, 512, 7, 512, 3, 1},
                                        {8, 256, 28, 512, 1, 2}, {1, 16, 32, 32, 5, 1}};
    for (int i = 0; i < TCI_COUNT(layers); i++) {
        const int64_t *l = layers[i];
        char what[100];
        tc_tensor x = in4(TC_F32, l[0], l[1], l[2], l[2]);
        tc_tensor w = in4(TC_F32, l[3], l[1], l[4], l[4]);
        int pad = (int)l[4] / 2, stride = (int)l[5];
        tc_conv options = {.stride = {stride, stride}, .padding = {pad, pad}};
        snprintf(what, sizeof(what), "conv %lldx%lldx%lld to %lld, %lld", (long long)l[0],
                 (long long)l[1], (long long)l[2], (long long)l[3], (long long)l[4]);
        layer(what, tc_relu(tc_conv2d(x, w, TC_NONE, &options)));
    }
}

static void rows(void)
{
    static const int64_t shapes[][2] = {{7, 33},      {64, 1000},  {128, 768},   {1000, 1000},
                                        {4096, 4096}, {1, 100000}, {100000, 10}, {3000, 257}};
    for (int i = 0; i < TCI_COUNT(shapes); i++) {
        char what[100];
        tc_tensor x = in2(TC_F32, shapes[i][0], shapes[i][1]);
        tc_tensor y = in2(TC_F32, shapes[i][1], shapes[i][0]);
        tc_tensor h = in2(TC_BF16, shapes[i][0], shapes[i][1]);
        snprintf(what, sizeof(what), "%lldx%lld", (long long)shapes[i][0], (long long)shapes[i][1]);
        layer(what, tc_softmax(x, 1));
        layer(what, tc_softmax(x, 0));
        layer(what, tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5));
        layer(what, tc_sum(x, TC_AXES(0), false));
        layer(what, tc_sum(x, TC_AXES(1), false));
        layer(what, tc_max(tc_mul(h, 2), TC_AXES(0), false));
        layer(what, tc_argmax(x, 1, false));
        layer(what, tc_add(x, tc_transpose(y, 0, 1)));
        layer(what, tc_gelu(x));
        layer(what, tc_add(tc_mul(h, 3), 1));
        layer(what, tc_cumsum(x, 0));
        layer(what, tc_pad(x, 1, 3, 5, 0));
        layer(what, tc_flip(x, 1));
    }
}

/* ---- small shapes ---- */

static void cases(int share)
{
    size_t bytes = 0;
    char *text = json_read_file(CASES, &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    const json *list = manifest ? json_get(manifest, "cases") : NULL;
    begin_list(list ? list->n / 2 : 0, share); /* half of them have a choice, about */
    for (const json *spec = list ? list->first : NULL; spec; spec = spec->next) {
        orc_row row;
        orc_case c;
        if (!is_next() || !orc_row_find(json_string(spec, "op"), &row)) {
            continue;
        }
        memset(&c, 0, sizeof(c));
        orc_build(&c, ctx, spec, &row);
        if (!c.skip[0] && c.n_outputs > 0) {
            measure(json_string(spec, "op"), c.outputs[0]);
        }
    }
    json_free(manifest);
    free(text);
}

static void drawn(int share)
{
    begin_list(1, share);
    for (int seed = 1; seed < DRAWN && n_found < list_most; seed++) {
        char what[40];
        fz_recipe f;
        fz_graph g;
        if (!is_next()) {
            continue;
        }
        memset(&f, 0, sizeof(f));
        memset(&g, 0, sizeof(g));
        fz_draw_recipe(&f, (uint64_t)seed, ctx);
        snprintf(what, sizeof(what), "drawn %d", seed);
        if (fz_build(&f, ctx, &g)) {
            measure(what, g.outputs[0]);
        }
        fz_graph_free(&g);
    }
}

/* ---- the table ---- */

static int dearer_first(const void *a, const void *b)
{
    double x = ((const regret *)a)->ratio, y = ((const regret *)b)->ratio;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void table(const char *backend)
{
    char line[340];
    qsort(found, (size_t)n_found, sizeof(found[0]), dearer_first);
    snprintf(line, sizeof(line), "%s, median of %d kernels", backend, n_found);
    bench_row(line, found[n_found / 2].ratio, "of the fastest", BENCH_AT_MOST, 1.05);
    snprintf(line, sizeof(line), "%s, 95th percentile", backend);
    bench_row(line, found[n_found / 20].ratio, "of the fastest", BENCH_AT_MOST, 1.3);
    for (int i = 0; i < shown && i < n_found; i++) {
        snprintf(line, sizeof(line), "%s, worst %d (%.240s)", backend, i + 1, found[i].name);
        bench_row(line, found[i].ratio, "of the fastest", BENCH_INFO, 0);
    }
}

/* ---- one worker ---- */

/* A line for each kernel: its regret, and what it is; or `-` and why nothing can be measured. */
static void work(const char *backend, FILE *out)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = shared_backend(backend);
    o.fallback = TC_FALLBACK_REFUSE;
    o.no_disk_cache = true;
    o.memory_cache_bytes = -1;
    o.tune_ms = TUNE_MS;
    tc_program *f = NULL;
    if (!o.backend || tc_ctx_make(&ctx, &o)) {
        fprintf(out, "- there is no such backend here\n");
        return;
    }
    take_turn(F_WRLCK);
    tc_status status = tc_compile(tc_neg(in2(TC_F32, 3, 5)), &f);
    take_turn(F_UNLCK);
    if (status) {
        fprintf(out, "- %.*s\n", (int)strcspn(tc_error(ctx), "\n"), tc_error(ctx));
        tc_ctx_free(ctx);
        return;
    }
    tc_program_free(f);
    begin_list(LAYERS, wanted - wanted / 4);
    convolutions();
    rows();
    products();
    cases(wanted / 8);
    drawn(wanted / 8);
    tc_ctx_free(ctx);
    for (int i = 0; i < n_found; i++) {
        fprintf(out, "%.4f %s\n", found[i].ratio, found[i].name);
    }
}

/* Starts worker number `n`; what it writes. */
static FILE *start(const char *backend, int n)
{
    int ends[2];
    if (pipe(ends)) {
        return NULL;
    }
    pid_t pid = fork();
    if (pid == 0) {
        FILE *out = fdopen(ends[1], "w");
        worker = n;
        if (out) {
            work(backend, out);
            fclose(out);
        }
        _exit(0);
    }
    close(ends[1]);
    return fdopen(ends[0], "r");
}

static void measure_all(const char *backend)
{
    FILE *locked = tmpfile(), *from[WORKERS];
    until = bench_now_ns() + 1e9 * seconds;
    char line[300], reason[300] = "nothing could be measured";
    lock = locked ? fileno(locked) : -1;
    n_found = 0;
    for (int i = 0; i < workers; i++) {
        from[i] = start(backend, i);
    }
    for (int i = 0; i < workers; i++) {
        while (from[i] && fgets(line, sizeof(line), from[i])) {
            char *space = strchr(line, ' ');
            line[strcspn(line, "\n")] = 0;
            if (line[0] == '-') {
                snprintf(reason, sizeof(reason), "%s", line + 2);
            } else if (space && n_found < MOST) {
                found[n_found].ratio = atof(line);
                snprintf(found[n_found++].name, sizeof(found[0].name), "%s", space + 1);
            }
        }
        if (from[i]) {
            fclose(from[i]);
        }
    }
    while (wait(NULL) > 0) {
    }
    if (locked) {
        fclose(locked);
    }
    if (n_found > 0) {
        table(backend);
    } else {
        bench_skip(backend, reason);
    }
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    workers = TCI_MAX(TCI_MIN(tci_os_cpu_count() / 2, WORKERS), 1);
    bench_begin(argc, argv, "regret");
    fflush(stdout); /* workers have a copy of what waits there */
    for (int i = 1; i < argc; i++) {
        int n = atoi(argv[i]), value = i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (!strcmp(argv[i], "--backend") && i + 1 < argc) {
            only = argv[++i];
        } else if (!strcmp(argv[i], "--workers") && value > 0) {
            workers = TCI_MIN(value, WORKERS);
            i++;
        } else if (!strcmp(argv[i], "--seconds") && value > 0) {
            seconds = value;
            i++;
        } else if (!strcmp(argv[i], "--all")) {
            shown = MOST;
        } else {
            wanted = n > 0 && n <= MOST ? n : wanted;
        }
    }
    static const char *const backends[] = {"cpu", "cuda"};
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        if (!only || !strcmp(only, backends[i])) {
            measure_all(backends[i]);
        }
    }
    return bench_end();
}
