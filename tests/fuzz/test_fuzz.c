/* Random graphs of every op, dtype and layout; parts are evaluated while the rest is made:
 * the reference evaluator, the interpreter and native code (gcc and clang, several vector widths,
 * one thread and two, outputs in place of inputs) must give the same bits; and each element of an
 * elementwise node must be what tests/judge.h, which shares no formula with them, says of its
 * operands. Half of the graphs change parameters too: one as a whole, and one row of another.
 *
 * A failing graph is cut down (outputs dropped, inner steps turned into inputs) and printed with
 * its seed; TC_TEST_SEED=N replays that graph alone, TC_TEST_SOAK=1 draws thousands. */
#include "inside.h"

#include "../tc_test.h"
#include "judge.h"
#include "same.h"

#include <signal.h>
#include <unistd.h>

#include "draw.h"

enum { BATCH = 60, GRAPHS = 480, GRAPHS_SOAK = 6000, GUARD = 64, RING = 3 };

/* ---- how a graph is executed ---- */

typedef struct fz_way {
    const char *name, *backend, *cc;
    int vector_bits;
} fz_way;

static const fz_way ways[] = {
    {"interp", "interp", NULL, 0},
    {"cpu", "cpu", NULL, 0},
    {"cpu with clang, 256 bits", "cpu", "clang", 256},
    {"cpu, 512 bits", "cpu", NULL, 512},
    {"cpu, scalar", "cpu", NULL, -1},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static bool verify_now; /* every other batch runs as users do */

static tc_options options_of(int way, int threads)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = ways[way].backend;
    o.cc = ways[way].cc;
    o.vector_bits = ways[way].vector_bits;
    o.threads = threads;
    o.verify = verify_now;
    o.fallback = way ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    return o;
}

/* Of contexts: values that are needed while a graph is built are no work for a compiler. */
static const tc_options interpreted = {.backend = "interp", .no_disk_cache = true};

/* The second way that works here for a batch; 0: no compiler at all. */
static int native_way(int batch)
{
    static int works[WAYS]; /* 0 unknown, 1 yes, 2 no */
    static const int order[] = {1, 2, 1, 3, 4};
    int way = order[batch % 5];
    for (int k = 0; k < 2; k++, way = 1) {
        if (!works[way]) {
            tc_options o = options_of(way, 1);
            tc_ctx *ctx = NULL;
            tc_program *f = NULL;
            works[way] = 2;
            if (!tc_ctx_make(&ctx, &o) && !tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f)) {
                works[way] = 1;
            }
            tc_program_free(f);
            tc_ctx_free(ctx);
        }
        if (works[way] == 1) {
            return way;
        }
    }
    return 0;
}

/* ---- one graph ---- */

static int64_t n_states; /* graphs that change parameters */

typedef struct fz_case {
    fz_recipe f;
    fz_graph g;
    void *in[FZ_MAX_STEPS]; /* one block a buffer; the data begins at in_at */
    void *in_at[FZ_MAX_STEPS];
    void *want[FZ_MAX_OUT], *got[FZ_MAX_OUT]; /* of the reference; of the first executor */
    tc_status judged, ran;
    tc_program *programs[2];
    /* Half of the graphs change parameters: `runs` counts, and every other run makes `state` what
     * output `kept` is. expected is what it should be, after expected_runs. */
    bool has_state;
    tc_tensor state, runs, outputs[FZ_MAX_OUT + 3]; /* and the effects */
    int kept, n_outputs;
    int64_t expected_runs;
    void *expected;
    /* What output `kept` was in the last runs, each in a row of its own. */
    tc_tensor ring;
    void *expected_ring;
    char text[400]; /* what is wrong; "": nothing */
} fz_case;

TCT_PRINTF(2, 3) static void complain(fz_case *c, const char *format, ...)
{
    va_list args;
    if (!c->text[0]) {
        va_start(args, format);
        vsnprintf(c->text, sizeof(c->text), format, args);
        va_end(args);
    }
}

static size_t bytes_of(tc_tensor t)
{
    return (size_t)tc_nbytes(t);
}

/* Memory for the tensor, guard bytes behind it, at any alignment that its dtype allows. */
static void *buffer_make(tc_tensor t, unsigned shift, void **at)
{
    size_t bytes = bytes_of(t), item = (size_t)tci_dtype_get(tc_dtype_of(t))->bytes;
    char *block = (char *)malloc(bytes + GUARD + 8 * item);
    *at = block + (shift % 8) * item;
    memset(*at, 0xa5, bytes + GUARD);
    return block;
}

static bool guard_is_whole(const void *at, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++) {
        if (((const unsigned char *)at)[bytes + i] != 0xa5) {
            return false;
        }
    }
    return true;
}

static void case_free(fz_case *c)
{
    for (int i = 0; i < c->g.n_inputs; i++) {
        free(c->in[i]);
    }
    for (int i = 0; i < c->f.n_outputs; i++) {
        free(c->want[i]);
        free(c->got[i]);
    }
    for (int i = 0; i < 2; i++) {
        tc_program_free(c->programs[i]);
    }
    free(c->expected);
    free(c->expected_ring);
    c->expected = c->expected_ring = NULL;
    fz_graph_free(&c->g);
    memset(c->in, 0, sizeof(c->in));
    memset(c->want, 0, sizeof(c->want));
    memset(c->got, 0, sizeof(c->got));
    memset(c->programs, 0, sizeof(c->programs));
}

/* Every element of an elementwise node that the reference evaluator works out, against the row's
 * own definition over the same operands. */
static void judge_node(void *user, const tci_node *n, const tci_table *values)
{
    fz_case *c = (fz_case *)user;
    if (!tci_op_is_ew(n->op)) {
        return;
    }
    const tci_value *in[3], *y = tci_reference_values(values, n);
    for (int k = 0; k < 3; k++) {
        in[k] = tci_reference_values(values, n->in[k < n->n_in ? k : 0]);
    }
    tc_dtype t = (tc_dtype)n->in[0]->dtype, to = (tc_dtype)n->dtype;
    for (int64_t i = 0; i < tci_dim_known(tci_node_count(n)); i++) {
        judge_value j = judge_row(n->op, t, in[0][i], in[1][i], in[2][i]);
        if (!j.known) {
            complain(c, "%s of %s has no judge", tci_op_name(n->op), tci_dtype_get(t)->name);
        } else if (!judge_accepts(&j, to, y[i])) {
            double of[3];
            for (int k = 0; k < 3; k++) {
                of[k] = fz_is_float(t) ? in[k][i].f : (double)in[k][i].i;
            }
            complain(c, "%s of %s over %.17g, %.17g and %.17g is %.17g, the judge says %.17Lg",
                     tci_op_name(n->op), tci_dtype_get(t)->name, of[0], of[1], of[2],
                     fz_is_float(to) ? y[i].f : (double)y[i].i,
                     j.is_real ? j.real : (long double)judge_wrap(to, j.whole));
        }
    }
}

/* The outputs of the graph and, of every other one, the parameters that its runs change. */
static void state_open(fz_case *c, tc_ctx *ctx)
{
    c->n_outputs = c->f.n_outputs;
    memcpy(c->outputs, c->g.outputs, sizeof(c->g.outputs));
    c->has_state = c->f.seed % 2;
    if (!c->has_state) {
        return;
    }
    c->kept = (int)(c->f.seed / 2 % (uint64_t)c->f.n_outputs);
    tc_tensor y = c->g.outputs[c->kept];
    int64_t shape[1 + FZ_MAX_RANK] = {tc_dtype_of(y)};
    for (int i = 0; i < tc_rank(y); i++) {
        shape[1 + i] = tc_size(y, i);
    }
    c->state = tc_param_at(ctx, NULL, 1 + tc_rank(y), shape, TC_HERE);
    int64_t rows[2 + FZ_MAX_RANK] = {tc_dtype_of(y), RING};
    memcpy(rows + 2, shape + 1, sizeof(*shape) * (size_t)tc_rank(y));
    c->ring = tc_param_at(ctx, NULL, 2 + tc_rank(y), rows, TC_HERE);
    c->runs = tc_param(ctx, NULL, TC_I64);
    tc_tensor at = tc_reshape(tc_remainder(c->runs, RING), 1), row = tc_unsqueeze(y, 0);
    c->outputs[c->n_outputs++] = tc_assign(c->ring,
                                           tc_index_put(c->ring, TC_TENSORS(at), row, false));
    c->expected_ring = calloc(RING, bytes_of(y) + 1);
    tc_tensor odd = tc_bitwise_and(c->runs, 1);
    c->outputs[c->n_outputs++] = tc_assign(c->state, tc_where(odd, y, c->state));
    c->outputs[c->n_outputs++] = tc_assign(c->runs, tc_add(c->runs, 1));
    c->expected = calloc(1, bytes_of(y) + 1);
    c->expected_runs = 0;
    n_states++;
}

/* What the parameters are behind a run that gave y; one that failed left them as they were. */
static void check_state(fz_case *c, tc_status status, const void *y, const char *who)
{
    if (!c->has_state) {
        return;
    }
    int64_t runs = -1, n = tc_count(c->state);
    size_t bytes = bytes_of(c->state);
    if (!status) {
        memcpy((char *)c->expected_ring + (size_t)(c->expected_runs % RING) * bytes, y, bytes);
    }
    if (!status && c->expected_runs++ % 2) {
        memcpy(c->expected, y, bytes);
    }
    void *got = malloc(bytes + 1);
    tc_buf to = {.data = got, .n = n, .dtype = (int)tc_dtype_of(c->state)};
    tc_status read = tc_read(c->runs, &runs, 1);
    read = read ? read : tc_read_as(c->state, to);
    if (read || runs != c->expected_runs) {
        complain(c, "%s: %lld runs are counted, %lld were well; %s", who, (long long)runs,
                 (long long)c->expected_runs, tc_status_text(read));
    } else if (!same_bits(tc_dtype_of(c->state), got, c->expected, n)) {
        complain(c, "%s: the parameter is not what output %d was", who, c->kept);
    }
    void *rows = malloc(RING * bytes + 1);
    tc_buf all = {.data = rows, .n = RING * n, .dtype = (int)tc_dtype_of(c->ring)};
    if (tc_read_as(c->ring, all) ||
        !same_bits(tc_dtype_of(c->ring), rows, c->expected_ring, RING * n)) {
        complain(c, "%s: the ring's rows are not what output %d was", who, c->kept);
    }
    free(rows);
    free(got);
}

/* Builds the recipe, fills its inputs and has it judged: by the reference evaluator, whose
 * elementwise nodes are judged themselves. */
static bool case_open(fz_case *c, tc_ctx *ctx)
{
    tci_node *nodes[FZ_MAX_STEPS], *roots[FZ_MAX_OUT];
    c->text[0] = 0;
    if (!fz_build(&c->f, ctx, &c->g)) {
        fz_graph_free(&c->g);
        return false;
    }
    for (int i = 0; i < c->g.n_inputs; i++) {
        int step = c->g.input_steps[i];
        c->in[i] = buffer_make(c->g.inputs[i], (unsigned)(c->f.seed >> i), &c->in_at[i]);
        fz_fill(&c->f, step, c->in_at[i], tc_count(c->g.inputs[i]));
        nodes[i] = tci_handle_node(c->g.inputs[i]);
    }
    for (int i = 0; i < c->f.n_outputs; i++) {
        c->want[i] = calloc(1, bytes_of(c->g.outputs[i]) + 1);
        roots[i] = tci_handle_node(c->g.outputs[i]);
    }
    state_open(c, ctx);
    tci_reference_watch judge = {judge_node, c};
    c->judged = tci_reference_eval_watched(nodes, (const void *const *)c->in_at, c->g.n_inputs,
                                           roots, c->want, c->f.n_outputs, &judge);
    return true;
}

/* The first element that differs, or -1. tolerance 0: bits. */
static int64_t differs(tc_tensor t, const void *a, const void *b, double tolerance)
{
    tc_dtype dtype = tc_dtype_of(t);
    size_t item = (size_t)tci_dtype_get(dtype)->bytes;
    for (int64_t i = 0; i < tc_count(t); i++) {
        const char *p = (const char *)a + (size_t)i * item, *q = (const char *)b + (size_t)i * item;
        if (same_bits(dtype, p, q, 1)) {
            continue;
        }
        if (tolerance == 0) {
            return i;
        }
        double x = tci_value_load(dtype, p).f, y = tci_value_load(dtype, q).f;
        double size = fabs(y) > 1 ? fabs(y) : 1;
        if (!(x == y || fabs(x - y) <= tolerance * size)) {
            return i;
        }
    }
    return -1;
}

static void compare(fz_case *c, int output, const void *got, const void *want, double tolerance,
                    const char *who, const char *whom)
{
    tc_tensor t = c->g.outputs[output];
    int64_t at = differs(t, got, want, tolerance);
    if (at >= 0) {
        tc_dtype dtype = tc_dtype_of(t);
        int64_t offset = at * tci_dtype_get(dtype)->bytes;
        tci_value a = tci_value_load(dtype, (const char *)got + offset),
                  b = tci_value_load(dtype, (const char *)want + offset);
        double x = fz_is_float(dtype) ? a.f : (double)a.i;
        double y = fz_is_float(dtype) ? b.f : (double)b.i;
        complain(c, "output %d (%s), element %lld of %lld: %s gives %.17g, %s %.17g", output,
                 tci_dtype_get(dtype)->name, (long long)at, (long long)tc_count(t), who, x, whom,
                 y);
    }
}

/* What a run gave, against the first executor and the reference. */
static void check_run(fz_case *c, tc_status status, void *const *out, const char *who)
{
    if (c->ran == TC_STATUS_COUNT) {
        c->ran = status;
        if (status && (status != TC_ERR_INDEX || c->judged == TC_OK)) {
            complain(c, "%s: the run failed: %s", who, tc_status_text(status));
        }
    } else if (status != c->ran) {
        complain(c, "%s: %s, interp: %s", who, tc_status_text(status), tc_status_text(c->ran));
    }
    for (int i = 0; i < c->f.n_outputs && !status; i++) {
        fz_trust trust = c->f.steps[c->f.outputs[i]].trust;
        size_t bytes = bytes_of(c->g.outputs[i]);
        if (c->got[i]) {
            compare(c, i, out[i], c->got[i], 0, who, "interp");
        } else {
            c->got[i] = malloc(bytes + 1);
            memcpy(c->got[i], out[i], bytes);
        }
        if (trust != FZ_WILD && c->judged == TC_OK) {
            compare(c, i, out[i], c->want[i], trust == FZ_NEAR ? 1e-3 : 0, who, "the reference");
        }
    }
}

static void run_once(fz_case *c, tc_program *program, const char *who)
{
    void *blocks[FZ_MAX_OUT], *at[FZ_MAX_OUT];
    tc_buf in[FZ_MAX_STEPS], out[FZ_MAX_OUT];
    for (int i = 0; i < c->g.n_inputs; i++) {
        in[i] = (tc_buf){.data = c->in_at[i],
                         .n = tc_count(c->g.inputs[i]),
                         .dtype = (int)tc_dtype_of(c->g.inputs[i]),
                         .is_const = true};
    }
    for (int i = 0; i < c->f.n_outputs; i++) {
        tc_tensor t = c->g.outputs[i];
        blocks[i] = buffer_make(t, (unsigned)(c->f.seed >> (20 + i)), &at[i]);
        tc_buf b = {at[i], tc_count(t), (int)tc_dtype_of(t), false, 0, NULL, NULL};
        out[i] = b;
    }
    tc_bufs ins = {in, c->g.n_inputs}, outs = {out, c->f.n_outputs};
    tc_status status = tc_run(program, ins, outs);
    check_run(c, status, at, who);
    check_state(c, status, at[c->kept], who);
    for (int i = 0; i < c->f.n_outputs; i++) {
        if (!guard_is_whole(at[i], bytes_of(c->g.outputs[i]))) {
            complain(c, "%s wrote behind output %d", who, i);
        }
        free(blocks[i]);
    }
}

/* Output 0 in the memory of each input of its dtype and size: the same bits, or a refusal. */
static void run_in_place(fz_case *c, tc_program *program, const char *who)
{
    for (int k = 0; k < c->g.n_inputs && c->ran == TC_OK; k++) {
        tc_tensor x = c->g.inputs[k], y = c->g.outputs[0];
        if (tc_dtype_of(x) != tc_dtype_of(y) || tc_count(x) != tc_count(y) || !tc_count(x)) {
            continue;
        }
        void *copies[FZ_MAX_STEPS], *outs[FZ_MAX_OUT];
        tc_buf in[FZ_MAX_STEPS], out[FZ_MAX_OUT];
        for (int i = 0; i < c->g.n_inputs; i++) {
            size_t bytes = bytes_of(c->g.inputs[i]);
            copies[i] = malloc(bytes + 1);
            memcpy(copies[i], c->in_at[i], bytes);
            in[i] = (tc_buf){.data = copies[i],
                             .n = tc_count(c->g.inputs[i]),
                             .dtype = (int)tc_dtype_of(c->g.inputs[i])};
        }
        for (int i = 0; i < c->f.n_outputs; i++) {
            outs[i] = i ? malloc(bytes_of(c->g.outputs[i]) + 1) : copies[k];
            out[i] = (tc_buf){.data = outs[i],
                              .n = tc_count(c->g.outputs[i]),
                              .dtype = (int)tc_dtype_of(c->g.outputs[i])};
        }
        tc_bufs ins = {in, c->g.n_inputs}, to = {out, c->f.n_outputs};
        tc_status status = tc_run(program, ins, to);
        if (status != TC_ERR_BUFFER) {
            check_run(c, status, outs, who);
        }
        check_state(c, status, outs[c->kept], who);
        for (int i = 0; i < c->g.n_inputs; i++) {
            free(copies[i]);
        }
        for (int i = 1; i < c->f.n_outputs; i++) {
            free(outs[i]);
        }
    }
}

/* ---- batches ---- */

static tc_job job_of(fz_case *c, int slot)
{
    tc_job job = {{c->g.inputs, c->g.n_inputs},
                  {c->outputs, c->n_outputs},
                  &c->programs[slot],
                  TC_OK};
    return job;
}

static void run_batch(fz_case *cases, int n, int way)
{
    tc_job jobs[BATCH];
    for (int threads = 1; threads <= (way ? 2 : 1); threads++) {
        char who[64];
        tc_options o = options_of(way, threads);
        snprintf(who, sizeof(who), "%s, %d thread%s", ways[way].name, threads,
                 threads > 1 ? "s" : "");
        for (int i = 0; i < n; i++) {
            jobs[i] = job_of(&cases[i], threads - 1);
        }
        tc_compile_many(jobs, n, &o);
        for (int i = 0; i < n; i++) {
            if (jobs[i].status) { /* its own fault, or a neighbour's? */
                jobs[i] = job_of(&cases[i], threads - 1);
                tc_compile_many(&jobs[i], 1, &o);
            }
            if (jobs[i].status) {
                complain(&cases[i], "%s does not compile: %s, %.200s", who,
                         tc_status_text(jobs[i].status), tc_error(cases[i].g.outputs[0]));
                continue;
            }
            run_once(&cases[i], cases[i].programs[threads - 1], who);
            if (threads == 1) {
                run_in_place(&cases[i], cases[i].programs[0], who);
            }
        }
        for (int i = 0; i < n; i++) {
            tc_program_free(cases[i].programs[threads - 1]);
            cases[i].programs[threads - 1] = NULL;
        }
    }
}

/* ---- a failing graph ---- */

/* The recipe alone, on interp and this way; true and text when something is wrong. */
static bool fails(const fz_recipe *f, int way, char *text, size_t room)
{
    fz_case *c = (fz_case *)calloc(1, sizeof(*c));
    tc_ctx *ctx;
    bool failed = false;
    if (!tc_ctx_make(&ctx, &interpreted)) {
        c->f = *f;
        if (case_open(c, ctx)) {
            c->ran = TC_STATUS_COUNT;
            run_batch(c, 1, 0);
            if (way && !c->text[0]) {
                run_batch(c, 1, way);
            }
            failed = c->text[0] != 0;
            snprintf(text, room, "%s", c->text);
            case_free(c);
        }
        tc_ctx_free(ctx);
    }
    free(c);
    return failed;
}

/* Turns step i into an input of its shape. */
static void cut_step(fz_recipe *f, int i)
{
    fz_step *s = &f->steps[i];
    double whole = s->whole;
    memset(s->attr, 0, sizeof(s->attr));
    s->kind = FZ_INPUT;
    s->n_in = 0;
    s->attr[0] = whole > 0 ? FZ_DATA_WHOLE : FZ_DATA_UNIT;
}

static void minimise(fz_recipe *f, int way)
{
    char text[400];
    for (int i = 0; f->n_outputs > 1 && i < f->n_outputs;) {
        fz_recipe less = *f;
        for (int k = i; k + 1 < less.n_outputs; k++) {
            less.outputs[k] = less.outputs[k + 1];
        }
        less.n_outputs--;
        if (fails(&less, way, text, sizeof(text))) {
            *f = less;
        } else {
            i++;
        }
    }
    for (int i = f->n - 1; i >= 0; i--) {
        fz_recipe less = *f;
        if (less.steps[i].kind != FZ_INPUT) {
            cut_step(&less, i);
            if (fails(&less, way, text, sizeof(text))) {
                *f = less;
            }
        }
    }
}

static void report(const fz_case *c, int way)
{
    fz_recipe f = c->f;
    char text[400] = "(not when it is alone)";
    tct_fail(__FILE__, __LINE__, "TC_TEST_SEED=%llu: %s", (unsigned long long)f.seed, c->text);
    minimise(&f, way);
    (void)fails(&f, way, text, sizeof(text));
    printf("cut down: %s\n", text);
    tc_ctx *ctx;
    fz_graph g;
    if (!tc_ctx_make(&ctx, &interpreted)) {
        if (fz_build(&f, ctx, &g)) {
            tci_node *roots[FZ_MAX_OUT];
            tci_scratch s;
            tci_str out;
            memset(&out, 0, sizeof(out));
            tci_scratch_init(&s);
            for (int i = 0; i < f.n_outputs; i++) {
                roots[i] = tci_handle_node(g.outputs[i]);
            }
            tci_graph_print(&out, &s, roots, f.n_outputs);
            printf("%s\n", tci_str_text(&out));
            tci_str_free(&out);
            tci_scratch_free(&s);
        }
        fz_graph_free(&g);
        tc_ctx_free(ctx);
    }
    fflush(stdout);
}

/* ---- the run ---- */

static uint64_t seed_now; /* of the batch: what a crash is replayed from */
static int64_t drawn[TCI_OP_COUNT], loops[FZ_LOOPS];

static void on_crash(int number)
{
    char text[96];
    int n = snprintf(text, sizeof(text), "fuzz: signal %d in the batch of TC_TEST_SEED=%llu\n",
                     number, (unsigned long long)seed_now);
    if (write(1, text, (size_t)n) < n) {
        n = 0;
    }
    _exit(3);
}

static void count_ops(const fz_case *c)
{
    tci_node *roots[FZ_MAX_OUT];
    tci_scratch s;
    tci_scratch_init(&s);
    for (int i = 0; i < c->f.n_outputs; i++) {
        roots[i] = tci_handle_node(c->g.outputs[i]);
    }
    tci_node_list list = tci_graph_sort(&s, roots, c->f.n_outputs);
    for (int i = 0; i < list.n; i++) {
        drawn[list.items[i]->op]++;
    }
    tci_scratch_free(&s);
    for (int i = 0; i < c->f.n; i++) {
        if (c->f.steps[i].kind == FZ_LOOP && c->g.tensors[i].ctx) {
            loops[c->f.steps[i].attr[3]]++;
        }
    }
}

/* Graphs of seeds first .. first + n - 1; false once too many have failed. */
static bool fuzz_batch(uint64_t first, int n, int way)
{
    static int reports;
    static fz_case cases[BATCH];
    tc_ctx *ctx;
    int opened = 0;
    seed_now = first;
    REQUIRE(tc_ctx_make(&ctx, &interpreted) == TC_OK);
    memset(cases, 0, sizeof(cases));
    for (int i = 0; i < n; i++) {
        fz_case *c = &cases[opened];
        fz_draw_recipe(&c->f, first + (uint64_t)i, ctx);
        if (case_open(c, ctx)) {
            c->ran = TC_STATUS_COUNT;
            count_ops(c);
            opened++;
        } else {
            CHECK_MSG(false, "TC_TEST_SEED=%llu cannot be built again",
                      (unsigned long long)c->f.seed);
        }
    }
    run_batch(cases, opened, 0);
    if (way) {
        run_batch(cases, opened, way);
    }
    for (int i = 0; i < opened; i++) {
        if (cases[i].text[0] && reports < 4) {
            report(&cases[i], way);
            reports++;
        } else {
            CHECK_MSG(!cases[i].text[0], "TC_TEST_SEED=%llu: %s",
                      (unsigned long long)cases[i].f.seed, cases[i].text);
        }
        case_free(&cases[i]);
    }
    tc_ctx_free(ctx);
    return reports < 4;
}

TEST(executors_agree_on_random_graphs)
{
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : tct_soak ? GRAPHS_SOAK : GRAPHS;
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 1000003;
    signal(SIGSEGV, on_crash);
    signal(SIGBUS, on_crash);
    signal(SIGFPE, on_crash);
    for (int at = 0, batch = 0; at < n; at += BATCH, batch++) {
        int count = n - at < BATCH ? n - at : BATCH;
        int ways_of_one = one ? 2 * WAYS : 1; /* a graph replayed alone goes every way */
        for (int k = 0; k < ways_of_one; k++) {
            verify_now = one ? k % 2 == 0 : (batch + (int)(tct_seed & 1)) % 2 == 1;
            if (!fuzz_batch(first + (uint64_t)at, count, native_way(one ? k / 2 : batch))) {
                return;
            }
        }
    }
    if (!native_way(0)) {
        printf("fuzz/%s: no C compiler here: interpreter against reference only\n", tct_name);
    }
}

/* Rows that the recipes do not draw would go untested silently. */
TEST(every_op_was_drawn)
{
    if (getenv("TC_TEST_SEED") || !drawn[TCI_OP_INPUT]) {
        SKIP("the run drew one graph only");
    }
    drawn[TCI_OP_ASSIGN] = n_states; /* an effect, no value of a graph */
    drawn[TCI_OP_SEGMENT] = 1;       /* the planner's own */
    drawn[TCI_OP_CUSTOM] = 1;        /* a function of the user's: unit/test_custom.c */
    drawn[TCI_OP_COLLECTIVE] = 1;    /* several processes: comm/test_collectives.c */
    drawn[TCI_OP_SHARD] = 1;         /* parts of tensors: comm/test_partition.c */
    for (int op = 0; op < TCI_OP_COUNT; op++) {
        CHECK_MSG(drawn[op] > 0, "op %s is in no random graph", tci_op_name(op));
    }
    for (int kind = 0; kind < FZ_LOOPS; kind++) {
        CHECK_MSG(loops[kind] > 0, "no random graph has a loop of kind %d", kind);
    }
}

TEST_MAIN
