/* Gradients of attention on a GPU without one, on its matrix unit and by threads alone: the
 * kernels' text is run by the model (model.h) and compared with gradients in f64; NVRTC compiles it
 * where it is found. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "matrix_context.h"

typedef struct gradients {
    const char *name;
    int heads, queries, keys, d, dv;
    bool causal, half; /* half: f16 */
    bool forward;      /* the result of attention is one of the program's */
    bool full;         /* f32 */
    bool threads;      /* by threads alone */
    bool rounded;      /* scores are rounded, as products of halves are that a user writes */
    int groups;        /* heads of queries that share keys and values; 0: none do */
    bool of_values;    /* the gradient to these alone, with the result, */
    bool no_result;    /* or without: no kernel sums values */
} gradients;

static const gradients cases[] = {
    {"plain", 2, 256, 256, 64, 64, .forward = true},
    {"tails, and sizes that are no slabs", 1, 200, 328, 40, 72, .forward = true},
    {"causal", 2, 304, 304, 64, 64, .causal = true},
    {"heads of 128", 1, 384, 320, 128, 128, .causal = true, .forward = true},
    {"halves with a small exponent", 1, 256, 192, 64, 64, .half = true, .causal = true},
    {"rounded scores", 1, 256, 256, 64, 64, .rounded = true, .causal = true},
    {"rounded scores of f16", 1, 256, 256, 32, 32, .rounded = true, .half = true},
    {"f32, tails", 1, 150, 170, 20, 36, .full = true, .threads = true, .forward = true},
    {"f32, causal", 2, 140, 140, 33, 64, .full = true, .threads = true, .causal = true},
    {"f32, heads of 128", 1, 130, 150, 128, 128, .full = true, .threads = true},
    {"f32, heads of 256", 1, 64, 72, 256, 256, .full = true, .threads = true, .causal = true},
    {"halves by threads", 2, 100, 152, 24, 40, .half = true, .threads = true, .causal = true},
    {"grouped heads", 4, 128, 160, 64, 64, .groups = 2, .forward = true},
    {"grouped heads, causal", 4, 192, 192, 64, 64, .groups = 2, .causal = true},
    {"f32, grouped heads, causal", 4, 100, 100, 32, 64, .full = true, .threads = true, .groups = 4,
     .causal = true},
    {"heads of 256, sums left in turns", 2, 384, 192, 256, 256, .forward = true},
    {"heads of 256, causal", 1, 208, 208, 256, 256, .causal = true, .half = true},
    {"heads of 192 and 128, tails", 1, 136, 200, 192, 128, .causal = true},
    {"heads of 64 and 256", 1, 80, 96, 64, 256, .rounded = true},
    {"heads of 256 and 64, f16", 1, 96, 80, 256, 64, .half = true, .rounded = true},
    {"heads that are no slabs", 1, 72, 88, 136, 200, .forward = true},
    {"one head wide, both sums in one kernel", 1, 160, 128, 160, 96, .causal = true},
    {"grouped heads of 256, causal", 2, 96, 96, 256, 256, .groups = 2, .causal = true},
    {"few rows of heads of 256", 3, 16, 72, 256, 256, .half = true},
    {"halves by threads, heads of 256", 1, 40, 72, 256, 256, .half = true, .threads = true},
    {"values alone, causal", 2, 144, 144, 64, 80, .of_values = true, .causal = true},
    {"f32, values alone", 1, 150, 170, 36, 40, .of_values = true, .full = true, .threads = true},
    {"values without a result", 2, 200, 144, 64, 64, .of_values = true, .no_result = true},
    {"wide values without a result, causal", 2, 144, 144, 48, 136, .of_values = true,
     .no_result = true, .causal = true, .half = true},
    {"narrow values without a result", 1, 200, 200, 128, 40, .of_values = true, .no_result = true},
    {"f32, wide values without a result", 1, 150, 170, 20, 76, .of_values = true, .no_result = true,
     .full = true, .threads = true},
    {"f32, causal values without a result", 2, 140, 140, 64, 33, .of_values = true,
     .no_result = true, .full = true, .threads = true, .causal = true},
    {"grouped heads, values without a result", 4, 128, 160, 64, 64, .groups = 2, .of_values = true,
     .no_result = true},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]), N_IN = 4, N_OUT = 4 };

typedef struct problem {
    gradients c;
    tc_tensor in[N_IN], out[N_OUT]; /* q, k, v, cotangent; each result is the */
    int which[N_OUT], n_out;        /* gradient to an input, or the output */
    tc_program *program;
    void *data[N_IN];
    int64_t n_in[N_IN], n[N_OUT];
    double *weights, *changes; /* of pairs, in f64 */
} problem;

static tc_dtype dtype_of(const gradients *c)
{
    return c->full ? TC_F32 : c->half ? TC_F16 : TC_BF16;
}

/* Heads of keys and values. */
static int key_heads(const gradients *c)
{
    return c->groups ? c->heads / c->groups : c->heads;
}

/* Element i of values of that dtype. */
static double value_of(const gradients *c, const void *data, int64_t i)
{
    return c->full ? (double)((const float *)data)[i]
                   : of_half(((const uint16_t *)data)[i], c->half);
}

static void *make_values(const gradients *c, int64_t n)
{
    void *data = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) {
        double x = 2 * next_value();
        if (c->full) {
            ((float *)data)[i] = (float)x;
        } else {
            ((uint16_t *)data)[i] = to_half(x, c->half);
        }
    }
    return data;
}

static tc_tensor attention(const problem *p, tc_ctx *ctx)
{
    const gradients *c = &p->c;
    if (c->groups) {
        tc_tensor q = tc_reshape(p->in[0], key_heads(c), c->groups, c->queries, c->d);
        tc_tensor y = tc_scaled_dot_product_attention(q, tc_unsqueeze(p->in[1], 1),
                                                      tc_unsqueeze(p->in[2], 1), TC_NONE, c->causal,
                                                      0.25);
        return tc_reshape(y, c->heads, c->queries, c->dv);
    }
    if (!c->rounded) {
        return tc_scaled_dot_product_attention(p->in[0], p->in[1], p->in[2], TC_NONE, c->causal,
                                               0.25);
    }
    tc_tensor s = tc_mul(tc_matmul(p->in[0], tc_transpose(p->in[1], -1, -2)), 0.25);
    if (c->causal) {
        tc_tensor row = tc_unsqueeze(tc_arange(ctx, 0, c->queries, 1, TC_I64), 1);
        s = tc_where(tc_le(tc_arange(ctx, 0, c->keys, 1, TC_I64), row), s, -INFINITY);
    }
    return tc_matmul(tc_softmax(s, -1), p->in[2]);
}

static void make(problem *p, tc_ctx *ctx, gradients c)
{
    const int64_t q = (int64_t)c.heads * c.queries, k = (int64_t)key_heads(&c) * c.keys;
    const int64_t n[N_IN] = {q * c.d, k * c.d, k * c.dv, q * c.dv};
    const int rows[N_IN] = {c.queries, c.keys, c.keys, c.queries};
    const int first = c.of_values ? 2 : 0;
    tc_tensor grads[N_OUT];
    memset(p, 0, sizeof(*p));
    p->c = c;
    for (int i = 0; i < N_IN; i++) {
        p->n_in[i] = n[i];
        p->data[i] = make_values(&c, n[i]);
        p->in[i] = tc_input(ctx, "x", dtype_of(&c), i == 1 || i == 2 ? key_heads(&c) : c.heads,
                            rows[i], i < 2 ? c.d : c.dv);
    }
    grads[3] = attention(p, ctx);
    CHECK(!tc_vjp(((tc_tensors){&grads[3], 1}), ((tc_tensors){&p->in[3], 1}), p->in + first,
                  3 - first, grads + first));
    const bool result = c.forward || (c.of_values && !c.no_result);
    for (int i = first; i < 3 + result; i++) {
        p->out[p->n_out] = grads[i];
        p->n[p->n_out] = n[i];
        p->which[p->n_out++] = i;
    }
}

static void free_problem(problem *p)
{
    for (int i = 0; i < N_IN; i++) {
        free(p->data[i]);
    }
    free(p->weights);
    free(p->changes);
    tc_program_free(p->program);
}

/* ---- the judge ---- */

static double product(const problem *p, int a, int64_t i, int b, int64_t j, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++) {
        sum += value_of(&p->c, p->data[a], i * n + k) * value_of(&p->c, p->data[b], j * n + k);
    }
    return sum;
}

/* Weights, and the changes of scores, of one row. */
static void make_row(problem *p, int64_t row)
{
    const gradients *c = &p->c;
    int64_t first = row / c->queries / (c->heads / key_heads(c)) * c->keys;
    double *w = p->weights + row * c->keys, *g = p->changes + row * c->keys;
    double most = -INFINITY, sum = 0, much = 0;
    for (int64_t j = 0; j < c->keys; j++) {
        bool sees = !c->causal || j <= row % c->queries;
        w[j] = sees ? 0.25 * product(p, 0, row, 1, first + j, c->d) : -INFINITY;
        g[j] = product(p, 3, row, 2, first + j, c->dv);
        most = fmax(most, w[j]);
    }
    for (int64_t j = 0; j < c->keys; j++) {
        w[j] = exp(w[j] - most);
        sum += w[j];
    }
    for (int64_t j = 0; j < c->keys; j++) {
        w[j] /= sum;
        much += w[j] * g[j];
    }
    for (int64_t j = 0; j < c->keys; j++) {
        g[j] = 0.25 * w[j] * (g[j] - much);
    }
}

/* Element `column` of row `row` of result `which`. */
static double want(const problem *p, int which, int64_t row, int column, int width)
{
    static const int others[N_OUT] = {1, 0, 3, 2};
    const gradients *c = &p->c;
    bool of_query = which == 0 || which == 3;
    const double *pairs = which < 2 ? p->changes : p->weights;
    int rows = of_query ? c->queries : c->keys, n = of_query ? c->keys : c->queries;
    int64_t head = row / rows;
    int groups = c->heads / key_heads(c);
    double sum = 0;
    for (int64_t j = 0; of_query && j < n; j++) {
        int64_t at = (head / groups * n + j) * width + column;
        sum += pairs[row * c->keys + j] * value_of(c, p->data[others[which]], at);
    }
    for (int64_t j = 0; !of_query && j < n * groups; j++) { /* of all its heads */
        int64_t at = head * groups * n + j;
        sum += pairs[at * c->keys + row % rows] *
               value_of(c, p->data[others[which]], at * width + column);
    }
    return sum;
}

/* The largest error of a result, of its largest value. */
static double error_of(const problem *p, int out, const void *got)
{
    int which = p->which[out], width = which < 2 ? p->c.d : p->c.dv;
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < p->n[out]; i++) {
        double x = want(p, which, i / width, (int)(i % width), width);
        double off = fabs(x - value_of(&p->c, got, i));
        worst = off <= worst ? worst : off; /* NaN too */
        largest = fmax(largest, fabs(x));
    }
    return worst / largest;
}

static void run(tc_ctx *ctx, problem *p)
{
    double bound = (p->c.full ? 3e-6 : p->c.half ? 1e-3 : 6e-3) * (p->c.rounded ? 5 : 1);
    const tc_dtype t = dtype_of(&p->c);
    const size_t bytes = p->c.full ? 4 : 2;
    tc_buf in[N_IN], out[N_OUT];
    void *got[N_OUT];
    for (int i = 0; i < N_IN; i++) {
        in[i] = (tc_buf){.data = p->data[i], .dtype = t, .n = p->n_in[i]};
    }
    for (int i = 0; i < p->n_out; i++) {
        got[i] = malloc((size_t)p->n[i] * bytes);
        memset(got[i], 0x7f, (size_t)p->n[i] * bytes);
        out[i] = (tc_buf){.data = got[i], .dtype = t, .n = p->n[i]};
    }
    tc_status status = tc_run(p->program, ((tc_bufs){in, N_IN}), ((tc_bufs){out, p->n_out}));
    CHECK_MSG(status == TC_OK, "%s: %s, %s", p->c.name, tc_error(ctx), emu_why);
    for (int i = 0; i < p->n_out; i++) {
        double error = status ? 0 : error_of(p, i, got[i]);
        CHECK_MSG(error <= bound, "%s, seed %u: result %d is off by %.1e", p->c.name,
                  emu_model_seed, i, error);
        free(got[i]);
    }
}

/* ---- every form ---- */

/* Halves are by threads alone where there is no matrix unit. */
static bool is_without_unit(gradients c)
{
    return c.threads && !c.full;
}

/* Of halves, do keys and values have a kernel each on the unit? */
static bool is_apart(const gradients *c)
{
    return !c->full && !c->threads && (c->d + 15) / 16 + (c->dv + 15) / 16 > 16;
}

static tc_status compile_cases(tc_ctx *ctx, problem *problems, bool without_unit)
{
    tc_job jobs[CASES];
    int n = 0;
    memset(jobs, 0, sizeof(jobs));
    memset(problems, 0, sizeof(*problems) * CASES);
    for (int i = 0; i < CASES; i++) {
        if (is_without_unit(cases[i]) == without_unit) {
            make(&problems[i], ctx, cases[i]);
            jobs[n].inputs = (tc_tensors){problems[i].in, N_IN};
            jobs[n].outputs = (tc_tensors){problems[i].out, problems[i].n_out};
            jobs[n++].program = &problems[i].program;
        }
    }
    tc_status status = tc_compile_many(jobs, n, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    return status;
}

/* Attention, the sums of rows, and the two or three; no array of pairs. For values alone these need
 * no sums. Heads that share keys may sum these by themselves, in f32, and what is another shape of
 * results is copied. */
static void check_plan(const problem *p)
{
    const char *text = explained(p->program), *first = strstr(text, "gradients of attention");
    tc_program_info info;
    tc_program_get_info(p->program, &info);
    int kernels = 0;
    for (const char *at = first; at; at = strstr(at + 1, "gradients of attention")) {
        kernels++;
    }
    int others = p->c.of_values ? 1 : 2;
    CHECK_MSG(kernels == others + is_apart(&p->c), "%s:\n%s", p->c.name, text);
    if (kernels == 0) {
        return;
    }
    CHECK_MSG(strstr(text, "attention by steps"), "%s:\n%s", p->c.name, text);
    CHECK_MSG((strstr(first, "attention by 128 threads") != NULL) == p->c.threads, "%s:\n%s",
              p->c.name, text);
    CHECK_MSG(info.n_kernels == others + kernels || (p->c.groups && info.n_kernels <= 4 + kernels),
              "%s: %d kernels\n%s", p->c.name, info.n_kernels, text);
    CHECK_MSG((strstr(first, "longest first") != NULL) == p->c.causal, "%s:\n%s", p->c.name, text);
    int64_t result = (p->c.full ? 4 : 2) * p->n_in[3];
    int64_t most = result + 4 * 4 * (int64_t)p->c.heads * p->c.queries + 1024;
    most += p->c.groups ? result + 4 * p->c.groups * (p->n_in[1] + p->n_in[2]) : 0;
    CHECK_MSG(info.arena_bytes <= most, "%s: %lld bytes of workspace", p->c.name,
              (long long)info.arena_bytes);
}

static void check_case(tc_ctx *ctx, problem *p, int seeds)
{
    int64_t rows = (int64_t)p->c.heads * p->c.queries;
    p->weights = (double *)malloc(sizeof(double) * (size_t)(rows * p->c.keys));
    p->changes = (double *)malloc(sizeof(double) * (size_t)(rows * p->c.keys));
    for (int64_t row = 0; row < rows; row++) {
        make_row(p, row);
    }
    check_plan(p);
    for (emu_model_seed = 1; emu_model_seed <= (unsigned)seeds; emu_model_seed++) {
        run(ctx, p);
    }
}

TEST(gradients_of_every_form)
{
    static problem problems[CASES];
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int without_unit = 0; without_unit < 2; without_unit++) {
        tc_ctx *ctx = open_context("emulated", without_unit ? -1 : 0);
        REQUIRE(ctx);
        tc_status status = compile_cases(ctx, problems, without_unit);
        for (int i = 0; i < CASES && !status; i++) {
            if (problems[i].program) {
                check_case(ctx, &problems[i], i < 2 || is_apart(&cases[i]) ? 3 : 1);
            }
        }
        for (int i = 0; i < CASES; i++) {
            free_problem(&problems[i]);
        }
        tc_ctx_free(ctx);
    }
}

/* Sums that would be cut in parts, had they no form that keeps no pairs: plans alone. */
TEST(long_sums_are_left_whole)
{
    static const gradients few = {"f32, long",   4,           1024,
                                  1024,          64,          64,
                                  .full = true,  .groups = 4, .threads = true,
                                  .causal = true};
    static problem p;
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    make(&p, ctx, few);
    tc_tensors in = {p.in, N_IN}, out = {p.out, p.n_out};
    REQUIRE(!tc_compile_fn(in, out, NULL, &p.program));
    check_plan(&p);
    free_problem(&p);
    tc_ctx_free(ctx);
}

TEST(nvrtc_takes_the_text_and_has_nothing_to_say)
{
    static problem problems[CASES];
    const char *why = "";
    if (!tci_nvrtc_get(&why)) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    tc_shutdown(); /* a batch of its own, in one source */
    if (!compile_cases(ctx, problems, false)) {
        check_by_nvrtc(problems[0].program);
    }
    for (int i = 0; i < CASES; i++) {
        free_problem(&problems[i]);
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
