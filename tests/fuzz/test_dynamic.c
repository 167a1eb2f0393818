/* Random graphs whose sizes are symbols: one compile of each, on the interpreter and native, must
 * give at several sizes what the reference evaluator gives for the graph of those sizes, and both
 * the same bits.
 *
 * A size from 2 up becomes a symbol everywhere at once (leaves, targets of expand, bounds of
 * slices, counts of pads); what tc refuses to build with symbols is cut: the step becomes an input
 * of its shape. Odd seeds verify every stage, even ones run as users do. TC_TEST_SEED=N replays one
 * graph. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "../tc_test.h"
#include "same.h"

#include <signal.h>
#include <unistd.h>

#include "draw.h"

enum { GRAPHS = 150, GRAPHS_SOAK = 4000, TRIALS = 4, SIZES = 66, MOST = 24, ROOM = 60000 };

/* to[v]: what stands for size v. */
typedef struct dfz_map {
    int64_t to[SIZES];
} dfz_map;

static int64_t dfz_size(const dfz_map *map, int64_t v)
{
    return v >= 0 && v < SIZES ? map->to[v] : v;
}

/* The step at other sizes. */
static void dfz_map_step(fz_step *s, const dfz_map *map)
{
    if (s->kind == FZ_INPUT || s->kind == FZ_FULL || s->kind == FZ_RANDOM) {
        for (int i = 0; i < s->rank; i++) {
            s->sizes[i] = dfz_size(map, s->sizes[i]);
        }
    }
    if (s->kind == FZ_INPUT && s->attr[0] == FZ_DATA_INDEX) {
        s->attr[1] = dfz_size(map, s->attr[1]);
    }
    if (s->kind == FZ_SLICE || s->kind == FZ_PAD) { /* bounds and counts that look like a size */
        s->attr[1] = dfz_size(map, s->attr[1]);
        s->attr[2] = dfz_size(map, s->attr[2]);
    }
    if (s->kind == FZ_EXPAND || s->kind == FZ_RESHAPE) {
        for (int i = 1; i <= s->attr[0]; i++) {
            s->attr[i] = dfz_size(map, s->attr[i]);
        }
    }
}

static fz_recipe dfz_map_recipe(const fz_recipe *f, const dfz_map *map)
{
    fz_recipe r = *f;
    for (int i = 0; i < r.n; i++) {
        dfz_map_step(&r.steps[i], map);
    }
    return r;
}

static void dfz_cut(fz_step *s)
{
    double whole = s->whole;
    bool is_leaf = s->kind == FZ_BORROW;
    int64_t data = s->attr[0];
    memset(s->attr, 0, sizeof(s->attr));
    s->kind = FZ_INPUT;
    s->n_in = 0;
    s->attr[0] = is_leaf ? data : whole > 0 ? FZ_DATA_WHOLE : FZ_DATA_UNIT;
}

/* Builds f with symbols; what is refused is cut in f. Returns the number of symbolic axes of
 * values that were computed. */
static int dfz_build(fz_recipe *f, const dfz_map *symbols, tc_ctx *ctx, fz_graph *g)
{
    int n_symbolic = 0;
    fz_recipe r = dfz_map_recipe(f, symbols);
    memset(g, 0, sizeof(*g));
    for (int i = 0; i < f->n; i++) {
        g->tensors[i] = fz_call(&r, i, ctx, g);
        if (tc_status_of(g->tensors[i]) != TC_OK) {
            dfz_cut(&f->steps[i]);
            r.steps[i] = f->steps[i];
            dfz_map_step(&r.steps[i], symbols);
            g->tensors[i] = fz_call(&r, i, ctx, g);
        }
        const tci_node *n = tci_handle_node(g->tensors[i]);
        for (int a = 0; n && a < n->rank && r.steps[i].n_in; a++) {
            n_symbolic += !tci_dim_is_known(n->shape[a]);
        }
    }
    for (int i = 0; i < f->n_outputs; i++) {
        g->outputs[i] = g->tensors[f->outputs[i]];
    }
    return n_symbolic;
}

/* ---- one graph ---- */

typedef struct dfz_case {
    fz_recipe f;
    tc_program *programs[2];
    int n_programs, n_runs, n_judged;
    char text[700];
} dfz_case;

TCT_PRINTF(2, 3) static void dfz_complain(dfz_case *c, const char *format, ...)
{
    va_list args;
    if (!c->text[0]) {
        va_start(args, format);
        vsnprintf(c->text, sizeof(c->text), format, args);
        va_end(args);
    }
}

static bool dfz_same(tc_dtype t, const char *p, const char *q, double tolerance)
{
    if (same_bits(t, p, q, 1) || !fz_is_float(t) || tolerance <= 0) {
        return same_bits(t, p, q, 1);
    }
    double x = tci_value_load(t, p).f, y = tci_value_load(t, q).f;
    return x == y || fabs(x - y) <= tolerance * (fabs(y) > 1 ? fabs(y) : 1);
}

static void dfz_compare(dfz_case *c, tc_tensor t, int output, const void *got, const void *want,
                        double tolerance, const char *who, const char *whom)
{
    tc_dtype dtype = tc_dtype_of(t);
    for (int64_t i = 0; i < tc_count(t); i++) {
        int64_t at = i * tci_dtype_get(dtype)->bytes;
        const char *p = (const char *)got + at, *q = (const char *)want + at;
        if (!dfz_same(dtype, p, q, tolerance)) {
            tci_value a = tci_value_load(dtype, p), b = tci_value_load(dtype, q);
            bool is_float = fz_is_float(dtype);
            dfz_complain(c, "output %d (%s), element %lld of %lld: %s gives %.17g, %s %.17g",
                         output, tci_dtype_get(dtype)->name, (long long)i, (long long)tc_count(t),
                         who, is_float ? a.f : (double)a.i, whom, is_float ? b.f : (double)b.i);
            return;
        }
    }
}

static tc_buf dfz_buf(tc_tensor t, void *data, int64_t *sizes)
{
    tc_buf b = {data, tc_count(t), (int)tc_dtype_of(t), false, tc_rank(t), sizes, NULL};
    for (int a = 0; a < b.rank; a++) {
        sizes[a] = tc_size(t, a);
    }
    return b;
}

/* Memory and judgement of one trial. */
typedef struct dfz_trial {
    fz_recipe f;
    fz_graph g;
    void *in[FZ_MAX_STEPS], *want[FZ_MAX_OUT], *got[2][FZ_MAX_OUT];
    int64_t sizes[FZ_MAX_STEPS + FZ_MAX_OUT][FZ_MAX_RANK];
    tc_status judged;
} dfz_trial;

static void dfz_run(dfz_case *c, dfz_trial *t)
{
    tc_status first = TC_OK;
    for (int p = 0; p < c->n_programs; p++) {
        const char *who = p ? "cpu" : "interp";
        tc_buf in[FZ_MAX_STEPS], out[FZ_MAX_OUT];
        for (int i = 0; i < t->g.n_inputs; i++) {
            in[i] = dfz_buf(t->g.inputs[i], t->in[i], t->sizes[i]);
        }
        for (int i = 0; i < c->f.n_outputs; i++) {
            t->got[p][i] = malloc((size_t)tc_nbytes(t->g.outputs[i]) + 1);
            memset(t->got[p][i], 0xa5, (size_t)tc_nbytes(t->g.outputs[i]) + 1);
            out[i] = dfz_buf(t->g.outputs[i], t->got[p][i], t->sizes[FZ_MAX_STEPS + i]);
        }
        tc_bufs ins = {in, t->g.n_inputs}, outs = {out, c->f.n_outputs};
        tc_status status = tc_run(c->programs[p], ins, outs);
        first = p ? first : status;
        if (status && status == first && strstr(tc_error(c->programs[p]), "not certain")) {
            continue; /* of a size only its half, say, is the size of some axis */
        }
        c->n_runs++;
        if (status != first || (status && (status != TC_ERR_INDEX || t->judged == TC_OK))) {
            dfz_complain(c, "%s: the run failed: %s", who, tc_error(c->programs[p]));
        }
        for (int i = 0; i < c->f.n_outputs && !status; i++) {
            tc_tensor y = t->g.outputs[i];
            fz_trust trust = t->f.steps[c->f.outputs[i]].trust;
            if (((unsigned char *)t->got[p][i])[tc_nbytes(y)] != 0xa5) {
                dfz_complain(c, "%s wrote behind output %d", who, i);
            }
            if (p) {
                dfz_compare(c, y, i, t->got[1][i], t->got[0][i], 0, who, "interp");
            }
            if (trust != FZ_WILD && t->judged == TC_OK) {
                c->n_judged++;
                dfz_compare(c, y, i, t->got[p][i], t->want[i], trust == FZ_NEAR ? 1e-3 : 0, who,
                            "the reference");
            }
        }
    }
}

/* Builds the graph at the sizes of the map, judges it, and runs the programs at these sizes; unless
 * it does not fit there, or is another graph: a squeeze takes away an axis that happens to be 1. */
static void dfz_try(dfz_case *c, const fz_graph *symbolic, const dfz_map *sizes, tc_ctx *ctx)
{
    dfz_trial *t = calloc(1, sizeof(*t));
    tci_node *nodes[FZ_MAX_STEPS], *roots[FZ_MAX_OUT];
    t->f = dfz_map_recipe(&c->f, sizes);
    bool fits = true;
    for (int i = 0; i < t->f.n && fits; i++) {
        fits = fz_build_step(&t->f, i, ctx, &t->g) && fz_count(&t->f.steps[i]) <= ROOM &&
               tc_rank(t->g.tensors[i]) == tc_rank(symbolic->tensors[i]);
    }
    for (int i = 0; i < t->g.n_inputs && fits; i++) {
        t->in[i] = malloc((size_t)tc_nbytes(t->g.inputs[i]) + 1);
        fz_fill(&t->f, t->g.input_steps[i], t->in[i], tc_count(t->g.inputs[i]));
        nodes[i] = tci_handle_node(t->g.inputs[i]);
    }
    for (int i = 0; i < c->f.n_outputs && fits; i++) {
        t->g.outputs[i] = t->g.tensors[c->f.outputs[i]];
        t->want[i] = calloc(1, (size_t)tc_nbytes(t->g.outputs[i]) + 1);
        roots[i] = tci_handle_node(t->g.outputs[i]);
    }
    if (fits) {
        t->judged = tci_reference_eval(nodes, (const void *const *)t->in, t->g.n_inputs, roots,
                                       t->want, c->f.n_outputs, false);
        dfz_run(c, t);
    }
    for (int i = 0; i < t->g.n_inputs; i++) {
        free(t->in[i]);
    }
    for (int i = 0; i < c->f.n_outputs; i++) {
        free(t->want[i]);
        free(t->got[0][i]);
        free(t->got[1][i]);
    }
    fz_graph_free(&t->g);
    free(t);
}

/* ---- the run ---- */

static uint64_t dfz_seed; /* what a crash is replayed from */
static int dfz_native = -1;

static void dfz_on_crash(int number)
{
    char text[96];
    int n = snprintf(text, sizeof(text), "fuzz: signal %d in the graph of TC_TEST_SEED=%llu\n",
                     number, (unsigned long long)dfz_seed);
    if (write(1, text, (size_t)n) < n) {
        n = 0;
    }
    _exit(3);
}

static tc_options dfz_options(int way, bool verify)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = way ? "cpu" : "interp";
    o.verify = verify;
    o.no_disk_cache = true;
    o.threads = way ? 2 : 1;
    o.fallback = way ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    return o;
}

static void dfz_print(const dfz_case *c, const fz_graph *g)
{
    tci_node *roots[FZ_MAX_OUT];
    tci_scratch s;
    tci_str out = {0};
    tci_scratch_init(&s);
    for (int i = 0; i < c->f.n_outputs; i++) {
        roots[i] = tci_handle_node(g->outputs[i]);
    }
    tci_graph_print(&out, &s, roots, c->f.n_outputs);
    printf("%s\n", tci_str_text(&out));
    tci_str_free(&out);
    tci_scratch_free(&s);
}

static void dfz_compile(dfz_case *c, const fz_graph *g)
{
    for (int way = 0; way <= dfz_native && !c->text[0]; way++) {
        tc_options o = dfz_options(way, dfz_seed % 2); /* and as users run it */
        tc_tensors ins = {g->inputs, g->n_inputs}, outs = {g->outputs, c->f.n_outputs};
        tc_status status = tc_compile_fn(ins, outs, &o, &c->programs[way]);
        c->n_programs += status == TC_OK;
        if (status && !strstr(tc_error(g->outputs[0]), "is the size of no axis")) {
            dfz_complain(c, "%s does not compile: %s", o.backend, tc_error(g->outputs[0]));
        }
    }
}

/* Returns how often programs ran. */
static int dfz_graph(uint64_t seed, int *n_judged)
{
    static dfz_case c;
    dfz_map symbols, numbers;
    fz_graph g;
    fz_random r = {seed ^ 0x5bd1e995};
    tc_ctx *ctx = NULL;
    char name[16];
    dfz_seed = seed;
    memset(&c, 0, sizeof(c));
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    fz_draw_recipe(&c.f, seed, ctx);
    c.f.open = true;
    int64_t least = fz_below(&r, 3) == 0 ? 0 : 1;
    for (int v = 0; v < SIZES; v++) {
        snprintf(name, sizeof(name), "d%d", v);
        bool open = v >= 2 && fz_below(&r, 4) > 0;
        symbols.to[v] = open ? TC_DIM(name, least, 100) : v;
        numbers.to[v] = v;
    }
    for (int i = 0; i < c.f.n; i++) {
        if (c.f.steps[i].kind == FZ_BORROW) {
            dfz_cut(&c.f.steps[i]);
        }
    }
    if (dfz_build(&c.f, &symbols, ctx, &g) > 0) {
        dfz_compile(&c, &g);
    }
    for (int trial = 0; trial < TRIALS && c.n_programs && !c.text[0]; trial++) {
        dfz_try(&c, &g, &numbers, ctx);
        for (int v = 2; v < SIZES; v++) {
            bool open = symbols.to[v] != v;
            int below = trial == 1 ? 4 : trial == 2 ? 2 : MOST; /* the least ones, together */
            numbers.to[v] = open ? least + fz_below(&r, below) : v;
        }
    }
    CHECK_MSG(!c.text[0], "TC_TEST_SEED=%llu: %s", (unsigned long long)seed, c.text);
    if (c.text[0] && getenv("TC_TEST_SEED")) {
        dfz_print(&c, &g);
    }
    tc_program_free(c.programs[0]);
    tc_program_free(c.programs[1]);
    fz_graph_free(&g);
    tc_ctx_free(ctx);
    *n_judged += c.n_judged;
    return c.n_runs;
}

TEST(random_graphs_of_open_sizes)
{
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : tct_soak ? GRAPHS_SOAK : GRAPHS, runs = 0, judged = 0;
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 1000003;
    tc_options native = dfz_options(1, true);
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    signal(SIGSEGV, dfz_on_crash);
    signal(SIGFPE, dfz_on_crash);
    if (!tc_ctx_make(&ctx, &native)) {
        dfz_native = tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f) == TC_OK;
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    if (dfz_native != 1) {
        printf("fuzz/%s: no C compiler here: interpreter against reference only\n", tct_name);
        dfz_native = 0;
    }
    for (int i = 0; i < n && tct_failures < 5; i++) {
        runs += dfz_graph(first + (uint64_t)i, &judged);
    }
    CHECK_MSG(one || (runs > 2 * n && judged > 2 * n), "%d runs, %d outputs judged", runs, judged);
}

TEST_MAIN
