/* bench/price.c - is the price of a kernel right? What the cost model predicts over what is
 * measured, a row for each form of schedule.
 *
 *     price [PROGRAMS] [--first SEED] [--blocks] [--list] [--backend NAME] [--all] [--json]
 *
 * Default: 60 programs. One is random movement (pads, concatenations, slices with steps,
 * upsampling, transposes, reversals, rolls, gathers) of random images with element-wise ops
 * between, then stored, summed along an axis or normalized; --blocks: random blocks of layers
 * (blocks.h). All kernels of a program are measured where they run, on one thread or on the
 * device, and the best of several runs counts. The model has a nominal clock, so a row's figure
 * is the part of its kernels whose ratio is within a factor 2 of the median over all kernels.
 * --list: also kernels that the model prices above 5 times what no schedule can be faster than.
 * --all: each kernel. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"
#include "blocks.h"
#include "note.h"

#include <math.h>

enum {
    MOST = 20000,   /* kernels */
    FUNCTIONS = 64, /* of one program */
    FORMS = 32,
    RUNS = 25,
    REPEATED = 8, /* launches of a kernel on a device for one measurement */
    DEAR = 5      /* times the least time, from which --list has a kernel */
};
#define LEAST_NS 2000.0 /* of a kernel that counts: of shorter ones the call is measured */

typedef struct row {
    char form[24], text[220];
    double model, least, measured; /* ns */
} row;

static row rows[MOST];
static int n_rows;
static struct {
    const char *backend;
    bool blocks, list, all;
} options = {"cpu", false, false, false};

/* ---- a backend that measures ---- */

typedef struct function {
    void *of; /* as the backend has it */
    char symbol[160];
    double ns, best; /* of the run at hand; of all */
} function;

static function functions[FUNCTIONS];
static int n_functions;
static const tc_backend *timed;

static void call(int i, void *const *buffers, const int64_t *literals, int64_t *fault,
                 int64_t begin, int64_t end)
{
    union {
        void *object;
        tci_kernel_fn call;
    } u = {functions[i].of};
    double from = bench_now_ns();
    u.call(buffers, literals, fault, begin, end);
    functions[i].ns += bench_now_ns() - from;
}

/* A host function for each place of `functions`, as a program calls its kernels by address. */
#define EACH8(make, d)                                                                             \
    make(d##0) make(d##1) make(d##2) make(d##3) make(d##4) make(d##5) make(d##6) make(d##7)
#define EACH64(make)                                                                               \
    EACH8(make, 00) EACH8(make, 01) EACH8(make, 02) EACH8(make, 03) EACH8(make, 04)                \
    EACH8(make, 05) EACH8(make, 06) EACH8(make, 07)
#define MAKE_CALL(i)                                                                               \
    static void call_##i(void *const *buffers, const int64_t *literals, int64_t *fault,            \
                         int64_t begin, int64_t end)                                               \
    {                                                                                              \
        call(i, buffers, literals, fault, begin, end);                                             \
    }
EACH64(MAKE_CALL)
#define NAME_CALL(i) call_##i,
static const tci_kernel_fn calls[FUNCTIONS] = {EACH64(NAME_CALL)};

static void *find(void *user, void *module, const char *symbol)
{
    void *found = timed->module_find(user, module, symbol);
    if (!found || n_functions == FUNCTIONS) {
        return found;
    }
    function *f = &functions[n_functions];
    memset(f, 0, sizeof(*f));
    f->of = found;
    snprintf(f->symbol, sizeof(f->symbol), "%s", symbol);
    union {
        void *object;
        tci_kernel_fn call;
    } u = {.call = calls[n_functions++]};
    return timed->launch ? found : u.object;
}

static tc_status launch(void *user, const tc_launch *l)
{
    tc_status status = timed->sync(user);
    double from = bench_now_ns();
    for (int i = 0; i < REPEATED && status == TC_OK; i++) {
        status = timed->launch(user, l);
    }
    status = status == TC_OK ? timed->sync(user) : status;
    for (int i = 0; i < n_functions; i++) {
        functions[i].ns += functions[i].of == l->function ? (bench_now_ns() - from) / REPEATED : 0;
    }
    return status;
}

/* The name of a copy of the backend whose kernels are timed; NULL: there is none. */
static const char *timed_backend(const char *name)
{
    static tc_backend copy;
    static char text[16];
    timed = !strcmp(name, "cuda") ? tci_cuda_backend() : tci_cpu_backend();
    copy = *timed;
    snprintf(text, sizeof(text), "%.8s timed", name);
    copy.name = text;
    copy.module_find = find;
    if (copy.launch) {
        copy.launch = launch;
        copy.record = NULL;
        copy.replay = NULL;
        copy.sequence_free = NULL;
        copy.record_loop = NULL;
        copy.queues = NULL;
    }
    return tc_register_backend(&copy) == TC_OK ? text : NULL;
}

/* ---- one program ---- */

/* A row for each kernel of the program that was measured. */
static void read_kernels(const char *what, const tc_program *f, double processors)
{
    for (int i = 0; i < f->code->n_kernels; i++) {
        const tci_code_kernel *k = &f->code->kernels[i];
        const char *line = k->note ? strstr(k->note, "schedule ") : NULL;
        int steps = 0, at = 0;
        for (int t = 0; t < f->code->n_steps; t++) {
            steps += f->code->steps[t].kernel == i;
        }
        while (at < n_functions &&
               (timed->launch ? functions[at].of != k->function : calls[at] != k->fn)) {
            at++;
        }
        if (!line || at == n_functions || functions[at].best <= 0 || n_rows == MOST) {
            continue;
        }
        row *r = &rows[n_rows++];
        r->measured = functions[at].best / steps;
        note_read(line, processors, &r->model, &r->least, r->form);
        snprintf(r->text, sizeof(r->text), "%.60s, %.50s: %.80s", what, k->symbol,
                 strstr(line, ": ") + 2);
    }
}

static float *numbers(int64_t n, uint64_t state)
{
    float *p = calloc((size_t)n + 1, sizeof(*p));
    for (int64_t i = 0; p && i < n && state; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        p[i] = (float)(state >> 40) / (float)(1 << 25) - 0.25f;
    }
    return p;
}

static void run(tc_program *f, block *b, tc_tensor y)
{
    tc_buf in[MOST_INPUTS], out = TC_BUF(numbers(tc_count(y), 0), tc_count(y));
    for (int i = 0; i < b->n_inputs; i++) {
        int64_t n = tc_count(b->inputs[i]);
        in[i] = TC_BUF(numbers(n, (uint64_t)i + 1), n);
    }
    for (int r = 0; r < RUNS; r++) {
        for (int i = 0; i < n_functions; i++) {
            functions[i].ns = 0;
        }
        tc_status status = tc_run(f, ((tc_bufs){in, b->n_inputs}), ((tc_bufs){&out, 1}));
        for (int i = 0; i < n_functions && status == TC_OK && r > 0; i++) {
            double ns = functions[i].ns, best = functions[i].best;
            functions[i].best = best > 0 && best < ns ? best : ns;
        }
    }
    for (int i = 0; i < b->n_inputs; i++) {
        free(in[i].data);
    }
    free(out.data);
}

static void measure(int seed, const char *backend)
{
    block b = {0};
    tc_options o = {.backend = backend, .threads = 1, .fallback = TC_FALLBACK_REFUSE};
    tc_program *f = NULL;
    if (tc_ctx_make(&b.ctx, &o)) {
        bench_skip("price", "the backend does not work here");
        return;
    }
    n_functions = 0;
    tc_tensor y = options.blocks ? draw_block(&b, seed) : draw_movement(&b, seed);
    if (tc_compile_fn(TC_TENSORS_N(b.inputs, b.n_inputs), TC_TENSORS(y), &o, &f)) {
        bench_skip(b.name, tc_error(b.ctx));
    } else {
        run(f, &b, y);
        read_kernels(b.name, f, timed->launch ? 1 : tci_os_cpu_count());
    }
    tc_program_free(f);
    tc_ctx_free(b.ctx);
    tc_shutdown(); /* a kernel of another program would be known by this one's function */
}

/* ---- the table ---- */

static int smaller_first(const void *a, const void *b)
{
    double x = ((const row *)a)->model / ((const row *)a)->measured;
    double y = ((const row *)b)->model / ((const row *)b)->measured;
    return x < y ? -1 : x > y;
}

/* The rows of one form, or of all (NULL), against the median of all. */
static void form_row(const char *form, double middle)
{
    int n = 0, within = 0;
    double least = HUGE_VAL, most = 0;
    char line[200];
    for (int i = 0; i < n_rows; i++) {
        double ratio = rows[i].model / rows[i].measured / middle;
        if (rows[i].measured >= LEAST_NS && (!form || !strcmp(form, rows[i].form))) {
            n++;
            within += ratio >= 0.5 && ratio <= 2;
            least = fmin(least, ratio);
            most = fmax(most, ratio);
        }
    }
    if (n > 0) {
        snprintf(line, sizeof(line), "%s, %d kernels from %.2f to %.2f", form ? form : "all", n,
                 least, most);
        bench_row(line, (double)within / n, "in 2x", form ? BENCH_INFO : BENCH_AT_LEAST, 0.95);
    }
}

static void table(void)
{
    char done[FORMS][24];
    char line[340];
    int n_done = 0, n = 0;
    qsort(rows, (size_t)n_rows, sizeof(rows[0]), smaller_first);
    for (int i = 0; i < n_rows; i++) {
        n += rows[i].measured >= LEAST_NS;
    }
    double middle = 1;
    for (int i = 0, at = 0; i < n_rows; i++) {
        at += rows[i].measured >= LEAST_NS;
        if (at == (n + 1) / 2 && rows[i].measured >= LEAST_NS) {
            middle = rows[i].model / rows[i].measured;
            break;
        }
    }
    bench_row("predicted over measured, median", middle, "", BENCH_INFO, 0);
    for (int i = 0; i < n_rows && n_done < FORMS; i++) {
        bool again = false;
        for (int j = 0; j < n_done; j++) {
            again = again || !strcmp(done[j], rows[i].form);
        }
        if (!again) {
            memcpy(done[n_done++], rows[i].form, sizeof(done[0]));
            form_row(rows[i].form, middle);
        }
    }
    form_row(NULL, middle);
    for (int i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        double ratio = r->model / r->measured / middle;
        bool off = r->measured >= LEAST_NS && (ratio < 0.5 || ratio > 2);
        bool dear = options.list && r->model > DEAR * r->least && r->model >= LEAST_NS;
        if (options.all || off || dear) {
            snprintf(line, sizeof(line), "%s%.240s: %.1f us", dear ? "dear: " : "", r->text,
                     r->measured * 1e-3);
            bench_row(line, dear ? r->model / r->least : ratio, dear ? "of at best" : "of median",
                      BENCH_INFO, 0);
        }
    }
}

int main(int argc, char **argv)
{
    int programs = 60, first = 1;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        options.blocks = options.blocks || !strcmp(argv[i], "--blocks");
        options.list = options.list || !strcmp(argv[i], "--list");
        options.all = options.all || !strcmp(argv[i], "--all");
        if (argv[i][0] != '-') {
            programs = atoi(argv[i]);
        } else if (!strcmp(argv[i], "--first") && more) {
            first = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--backend") && more) {
            options.backend = argv[++i];
        }
    }
    bench_begin(argc, argv, "price");
    const char *backend = timed_backend(options.backend);
    for (int seed = first; seed < first + programs && backend; seed++) {
        measure(seed, backend);
    }
    table();
    return bench_end();
}
