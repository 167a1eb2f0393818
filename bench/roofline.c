/* bench/roofline.c - kernels that the cost model prices above 5 times their roofline, the time that
 * no schedule can be faster than: a list of what to mend, without measuring or a compiler.
 *
 *     roofline [SEEDS] [--networks] [--oracle] [--blocks] [--movement] [--most N] [--json]
 *
 * Default: all four kinds of programs, 60 seeds, the worst 40 kernels. Networks of examples/models,
 * inference and training; the cases of tests/data; random blocks of layers with and without their
 * gradients, and random movement (blocks.h). Kernels are scheduled for one thread of this machine
 * and never built, so the list is the same on a busy machine. Those of less than 2 us do not count.
 * Equal kernels are listed once. bench/results/fusion.md has the reason of each entry that stays. */
#define _GNU_SOURCE
#define TC_IMPLEMENTATION
#include "tc.h"

#include "../examples/models/models.h"
#include "bench.h"
#include "blocks.h"
#include "note.h"

#define TCT_UNUSED
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function" /* what of it is not needed here */
#endif
#include "../tests/oracle_run.h"

#define CASES "tests/data/opinfo.json"
#define LEAST_NS 2000.0

enum { MOST_ROWS = 20000, DEAR = 5, NAME_MOST = 240 };

typedef struct row {
    char text[NAME_MOST];
    double model, least; /* ns */
} row;

static row rows[MOST_ROWS];
static int n_rows, n_kernels, shown = 40;

/* ---- a backend that builds nothing ---- */

static tc_status compile_nothing(void *user, tc_build *build)
{
    (void)user;
    for (int i = 0; i < build->n; i++) {
        FILE *f = fopen(build->outputs[i], "wb");
        if (!f || fputs("nothing", f) < 0 || fclose(f)) {
            return TC_ERR_IO;
        }
    }
    return TC_OK;
}

static tc_status load_nothing(void *user, const void *bytes, size_t n, const char *path,
                              void **module)
{
    static int nothing;
    (void)user;
    (void)bytes;
    (void)n;
    (void)path;
    *module = &nothing;
    return TC_OK;
}

static void *find_nothing(void *user, void *module, const char *symbol)
{
    (void)user;
    (void)symbol;
    return module;
}

static void free_nothing(void *user, void *module)
{
    (void)user;
    (void)module;
}

static bool register_backend(void)
{
    static tc_backend copy;
    copy = *tci_cpu_backend();
    copy.name = "cpu unbuilt";
    copy.compile = compile_nothing;
    copy.module_load = load_nothing;
    copy.module_find = find_nothing;
    copy.module_free = free_nothing;
    return tc_register_backend(&copy) == TC_OK;
}

static tc_ctx *begin(void)
{
    tc_options o = {.backend = "cpu unbuilt",
                    .threads = 1,
                    .no_disk_cache = true,
                    .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx = NULL;
    if (tc_ctx_make(&ctx, &o)) {
        fprintf(stderr, "roofline: no context\n");
        exit(1);
    }
    return ctx;
}

/* ---- one program ---- */

static bool is_listed(const char *text)
{
    for (int i = 0; i < n_rows; i++) {
        if (!strcmp(strstr(rows[i].text, ": ") + 2, text)) {
            return true;
        }
    }
    return false;
}

static void read_kernels(const char *what, const tc_program *f)
{
    for (int i = 0; i < f->code->n_kernels; i++) {
        const tci_code_kernel *k = &f->code->kernels[i];
        const char *line = k->note ? strstr(k->note, "schedule ") : NULL;
        row r;
        char text[NAME_MOST], form[NOTE_FORM] = "";
        if (!line) {
            continue;
        }
        note_read(line, tci_os_cpu_count(), &r.model, &r.least, form);
        n_kernels += r.model >= LEAST_NS;
        snprintf(text, sizeof(text), "%.60s %.60s", k->symbol, strstr(line, ": ") + 2);
        if (r.model > DEAR * r.least && r.model >= LEAST_NS && n_rows < MOST_ROWS &&
            !is_listed(text)) {
            snprintf(r.text, sizeof(r.text), "%.60s: %.150s", what, text);
            rows[n_rows++] = r;
        }
    }
}

static void look_at(const char *what, tc_tensors inputs, tc_tensors outputs)
{
    tc_program *f = NULL;
    if (tc_compile_fn(inputs, outputs, NULL, &f)) {
        bench_skip(what, "it does not compile");
        return;
    }
    read_kernels(what, f);
    tc_program_free(f);
}

/* ---- networks ---- */

enum { NETWORK_INPUTS = NN_INPUTS + 1 };

static int add_inputs(tc_ctx *ctx, const nn_network *network, tc_tensor *in)
{
    bool images = !strcmp(network->inputs[0], "x");
    int n = 0;
    for (; n < NN_INPUTS && network->inputs[n]; n++) {
        const char *name = network->inputs[n];
        in[n] = images ? tc_input(ctx, name, TC_F32, 1, 3, 224, 224)
                       : tc_input(ctx, name, TC_I64, 1, 128);
    }
    return n;
}

static void look_at_network(const nn_network *network, bool train)
{
    tc_ctx *ctx = begin();
    nn_model model = {.ctx = ctx, .preset = network->preset, .learns = true, .training = train};
    tc_tensor in[NETWORK_INPUTS], y[NN_OUTPUTS];
    char name[80];
    int n_in = add_inputs(ctx, network, in), n_out = 1;
    network->build(nn_top(&model), in, y);
    int state = model.n_state;
    tc_tensor *outs = calloc(3 * (size_t)state + 2, sizeof(*outs)), *w = outs + state + 1;
    outs[0] = y[0];
    if (train) {
        outs[0] = tc_mean(tc_square(y[0]), TC_ALL, false);
        n_out += nn_learning(&model, w);
        if (tc_grad(outs[0], w, n_out - 1, outs + 1)) {
            n_out = 1;
        }
    }
    snprintf(name, sizeof(name), "%s%s", network->name, train ? " training" : "");
    look_at(name, TC_TENSORS_N(in, n_in), TC_TENSORS_N(outs, n_out));
    free(outs);
    nn_free(&model);
    tc_ctx_free(ctx);
}

static void networks(void)
{
    const int n = (int)(sizeof(nn_networks) / sizeof(*nn_networks));
    for (int i = 0; i < n; i++) {
        look_at_network(&nn_networks[i], false);
        look_at_network(&nn_networks[i], true);
    }
}

/* ---- cases and random blocks ---- */

static void oracle(void)
{
    size_t bytes = 0;
    char *text = json_read_file(CASES, &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    const json *list = manifest ? json_get(manifest, "cases") : NULL;
    if (!list) {
        bench_skip("cases", "no " CASES " here: run it from the project's root");
    }
    for (const json *spec = list ? list->first : NULL; spec; spec = spec->next) {
        tc_ctx *ctx = begin();
        orc_row of;
        orc_case c;
        memset(&c, 0, sizeof(c));
        if (orc_row_find(json_string(spec, "op"), &of)) {
            orc_build(&c, ctx, spec, &of);
            if (!c.skip[0] && c.n_outputs > 0 && tc_status_of(c.outputs[0]) == TC_OK) {
                look_at(json_string(spec, "op"), TC_TENSORS_N(c.inputs, c.n_inputs),
                        TC_TENSORS_N(c.outputs, 1));
            }
        }
        tc_ctx_free(ctx);
    }
    json_free(manifest);
    free(text);
}

static void block_of(int seed, bool movement, bool gradients)
{
    block b = {.ctx = begin()};
    tc_tensor y[MOST_INPUTS + 1];
    y[0] = movement ? draw_movement(&b, seed) : draw_block(&b, seed);
    int n = 1;
    if (gradients) {
        y[0] = tc_mean(tc_square(y[0]), TC_ALL, false);
        n += tc_grad(y[0], b.inputs, b.n_inputs, y + 1) ? 0 : b.n_inputs;
    }
    look_at(b.name, TC_TENSORS_N(b.inputs, b.n_inputs), TC_TENSORS_N(y, n));
    tc_ctx_free(b.ctx);
}

/* ---- the list ---- */

static int dearer_first(const void *a, const void *b)
{
    double x = ((const row *)a)->model / ((const row *)a)->least;
    double y = ((const row *)b)->model / ((const row *)b)->least;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void table(void)
{
    char line[NAME_MOST + 60];
    qsort(rows, (size_t)n_rows, sizeof(rows[0]), dearer_first);
    snprintf(line, sizeof(line), "kernels of %d above %d times their roofline", n_kernels, DEAR);
    bench_row(line, n_rows, "", BENCH_INFO, 0);
    for (int i = 0; i < n_rows && i < shown; i++) {
        snprintf(line, sizeof(line), "%.230s, at best %.1f us", rows[i].text, rows[i].least * 1e-3);
        bench_row(line, rows[i].model / rows[i].least, "of at best", BENCH_INFO, 0);
    }
}

int main(int argc, char **argv)
{
    int seeds = 60;
    bool kinds[4] = {false, false, false, false}, any = false;
    static const char *const names[4] = {"--networks", "--oracle", "--blocks", "--movement"};
    for (int i = 1; i < argc; i++) {
        for (int k = 0; k < 4; k++) {
            kinds[k] = kinds[k] || !strcmp(argv[i], names[k]);
            any = any || kinds[k];
        }
        if (argv[i][0] != '-') {
            seeds = atoi(argv[i]);
        } else if (!strcmp(argv[i], "--most") && i + 1 < argc) {
            shown = atoi(argv[++i]);
        }
    }
    bench_begin(argc, argv, "roofline");
    if (!register_backend()) {
        bench_skip("roofline", "no backend of processors here");
        return bench_end();
    }
    if (kinds[0] || !any) {
        networks();
    }
    if (kinds[1] || !any) {
        oracle();
    }
    for (int seed = 1; seed <= seeds && (kinds[2] || !any); seed++) {
        block_of(seed, false, false);
        block_of(seed, false, true);
    }
    for (int seed = 1; seed <= seeds && (kinds[3] || !any); seed++) {
        block_of(seed, true, false);
    }
    table();
    return bench_end();
}
