/* Attention on a GPU without one, on its matrix unit and by threads alone: the kernels' text is run
 * by the model (model.h) and compared with attention in f64, rounded where the graph rounds; NVRTC
 * compiles it where it is found. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "matrix_context.h"

typedef enum mask { NONE, CAUSAL, GIVEN, BIAS, NOTHING } mask; /* NOTHING: some rows see no key */

typedef struct attention {
    const char *name;
    int heads, queries, keys, d, dv;
    mask mask;
    int groups;      /* heads that share keys and values; 0: none do */
    bool half, wide; /* half: f16; wide: scores stay f32 */
    bool turned;     /* inputs as [queries][heads][d] */
    double cut;      /* the score of what CAUSAL cuts off; 0: -inf */
    bool after;      /* CAUSAL says so of keys that are cut off, not of those that are seen */
    bool gate;       /* the result is multiplied by another input and widened */
    bool full;       /* inputs are f32 */
    bool threads;    /* by threads alone */
    bool call;       /* by tc_scaled_dot_product_attention: rows that see no key are 0 */
} attention;

enum { MOST_INPUTS = 5 };

typedef struct problem {
    attention c;
    tc_tensor in[MOST_INPUTS], y;
    int n_in;
    tc_program *program;
    void *data[MOST_INPUTS];
    int64_t n[MOST_INPUTS], n_out;
} problem;

static double rounded(double x, bool half)
{
    return half ? (double)tci_f16_bits_to_f32(tci_f32_to_f16_bits((float)x))
                : (double)tci_round_bf16((float)x);
}

static tc_dtype dtype_of(attention c)
{
    return c.full ? TC_F32 : c.half ? TC_F16 : TC_BF16;
}

static double element_of(const problem *p, int input, int64_t i)
{
    if (p->c.full) {
        return (double)((const float *)p->data[input])[i];
    }
    return of_half(((const uint16_t *)p->data[input])[i], p->c.half);
}

static int key_heads(attention c)
{
    return c.groups ? c.heads / c.groups : c.heads;
}

/* An input of these sizes, filled. */
static tc_tensor add_input(problem *p, tc_ctx *ctx, tc_dtype t, int rank, int a, int b, int c)
{
    int64_t shape[4] = {t, a, b, c}, n = (int64_t)a * b * c;
    uint8_t *data = (uint8_t *)aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
    if (rank == 2) {
        shape[1] = b;
        shape[2] = c;
    }
    for (int64_t i = 0; i < n; i++) {
        if (t == TC_BOOL) {
            bool row = p->c.mask != NOTHING || i / c % 3 != 1;
            data[i] = row && next_value() > -0.3;
        } else if (p->c.full) {
            ((float *)data)[i] = (float)(2 * next_value());
        } else {
            ((uint16_t *)data)[i] = to_half(2 * next_value(), p->c.half);
        }
    }
    p->data[p->n_in] = data;
    p->n[p->n_in] = n;
    return p->in[p->n_in++] = tc_input_at(ctx, "x", rank + 1, shape, TC_HERE);
}

/* [heads][rows][size], in any layout. */
static tc_tensor add_heads(problem *p, tc_ctx *ctx, int heads, int rows, int size)
{
    tc_dtype t = dtype_of(p->c);
    if (!p->c.turned) {
        return add_input(p, ctx, t, 3, heads, rows, size);
    }
    return tc_permute(add_input(p, ctx, t, 3, rows, heads, size), 1, 0, 2);
}

static int64_t place(const problem *p, int heads, int rows, int size, int64_t head, int64_t row)
{
    return (p->c.turned ? row * heads + head : head * rows + row) * size;
}

static tc_tensor masked(problem *p, tc_ctx *ctx, tc_tensor s)
{
    attention c = p->c;
    if (c.mask == CAUSAL) {
        tc_tensor row = tc_unsqueeze(tc_arange(ctx, 0, c.queries, 1, TC_I64), 1);
        tc_tensor key = tc_arange(ctx, 0, c.keys, 1, TC_I64);
        double cut = c.cut != 0 ? c.cut : -INFINITY;
        return c.after ? tc_where(tc_gt(key, row), cut, s) : tc_where(tc_le(key, row), s, cut);
    }
    if (c.mask == GIVEN || c.mask == NOTHING) {
        return tc_where(add_input(p, ctx, TC_BOOL, 2, 1, c.queries, c.keys), s, -INFINITY);
    }
    if (c.mask == BIAS) {
        tc_tensor b = add_input(p, ctx, dtype_of(c), 2, 1, c.queries, c.keys);
        return tc_add(s, c.wide ? tc_cast(b, TC_F32) : b);
    }
    return s;
}

static void make(problem *p, tc_ctx *ctx, attention c)
{
    int kh = key_heads(c);
    memset(p, 0, sizeof(*p));
    p->c = c;
    p->n_out = (int64_t)c.heads * c.queries * c.dv;
    tc_tensor q = add_heads(p, ctx, c.heads, c.queries, c.d);
    tc_tensor k = tc_transpose(add_heads(p, ctx, kh, c.keys, c.d), -1, -2);
    tc_tensor v = add_heads(p, ctx, kh, c.keys, c.dv);
    if (c.call) {
        tc_tensor shown = add_input(p, ctx, TC_BOOL, 2, 1, c.queries, c.keys);
        p->y = tc_cast(tc_scaled_dot_product_attention(q, tc_transpose(k, -1, -2), v, shown, false,
                                                       0.25),
                       TC_F32);
        return;
    }
    if (c.groups) {
        q = tc_reshape(q, kh, c.groups, c.queries, c.d);
        k = tc_unsqueeze(k, 1);
        v = tc_unsqueeze(v, 1);
    }
    q = c.wide ? tc_cast(q, TC_F32) : q;
    k = c.wide ? tc_cast(k, TC_F32) : k;
    tc_tensor s = masked(p, ctx, tc_mul(tc_matmul(q, k), 0.25));
    tc_tensor w = tc_softmax(s, -1);
    w = c.wide ? tc_cast(w, dtype_of(c)) : w;
    p->y = tc_reshape(tc_matmul(w, v), c.heads, c.queries, c.dv);
    if (c.gate) {
        p->y = tc_mul(p->y, add_input(p, ctx, dtype_of(c), 3, c.heads, c.queries, c.dv));
    }
    p->y = tc_cast(p->y, TC_F32);
}

static void free_problem(problem *p)
{
    for (int i = 0; i < p->n_in; i++) {
        free(p->data[i]);
    }
    tc_program_free(p->program);
}

/* ---- the judge ---- */

/* The score of a key, rounded as the graph rounds it. */
static double want_score(const problem *p, int64_t head, int64_t row, int64_t key)
{
    const attention *c = &p->c;
    int64_t kh = key_heads(*c), from = c->groups ? head / c->groups : head;
    int64_t q = place(p, c->heads, c->queries, c->d, head, row);
    int64_t k = place(p, (int)kh, c->keys, c->d, from, key);
    double s = 0;
    for (int i = 0; i < c->d; i++) {
        s += element_of(p, 0, q + i) * element_of(p, 1, k + i);
    }
    s = c->wide || c->full ? 0.25 * s : rounded(0.25 * rounded(s, c->half), c->half);
    int64_t at = row * c->keys + key;
    switch (c->mask) {
    case CAUSAL: return key <= row ? s : c->cut != 0 ? c->cut : -INFINITY;
    case GIVEN:
    case NOTHING: return ((const uint8_t *)p->data[3])[at] ? s : -INFINITY;
    case BIAS: s += element_of(p, 3, at); return c->wide || c->full ? s : rounded(s, c->half);
    default: return s;
    }
}

/* How many elements of row `row` of head `head` are not as they should be: a score on the edge of
 * two roundings may be either, and so may be off by a unit. */
static int64_t wrong_in_row(const problem *p, int64_t head, int64_t row, const float *out)
{
    const attention *c = &p->c;
    int64_t kh = key_heads(*c), from = c->groups ? head / c->groups : head, wrong = 0;
    double unit = c->full ? 0x1p-20 : c->half ? 0x1p-11 : 0x1p-8;
    double most = -INFINITY, sum = 0, largest = 0;
    double *s = (double *)malloc(sizeof(double) * (size_t)c->keys);
    for (int64_t key = 0; key < c->keys; key++) {
        s[key] = want_score(p, head, row, key);
        most = fmax(most, s[key]);
        largest = isfinite(s[key]) ? fmax(largest, fabs(s[key])) : largest;
    }
    for (int64_t key = 0; key < c->keys; key++) {
        s[key] = exp(s[key] - most);
        sum += s[key];
    }
    for (int j = 0; j < c->dv; j++) {
        double y = 0, size = 0;
        for (int64_t key = 0; key < c->keys; key++) {
            int64_t v = place(p, (int)kh, c->keys, c->dv, from, key);
            y += s[key] / sum * element_of(p, 2, v + j);
            size += s[key] / sum * fabs(element_of(p, 2, v + j));
        }
        double more = c->full ? 1e-6 : 1e-5; /* of products and powers */
        double slack = size * (unit + (c->wide ? 1e-5 : unit * largest)) + fabs(y) * unit + more;
        int64_t at = (head * c->queries + row) * c->dv + j;
        if (c->gate) {
            double gate = element_of(p, p->n_in - 1, at);
            y *= gate;
            slack = slack * fabs(gate) + fabs(y) * unit + more;
        }
        y = c->call && most == -INFINITY ? 0 : y;
        slack = isnan(slack) ? 0 : slack;
        bool right = isnan(y) ? isnan(out[at]) : fabs((double)out[at] - y) <= slack;
        wrong += !right;
    }
    free(s);
    return wrong;
}

/* Runs it; how many elements are outside of their bound, -1: it does not run. */
static int64_t run(const problem *p)
{
    tc_buf in[MOST_INPUTS];
    int64_t wrong = 0;
    float *out = (float *)malloc((size_t)p->n_out * sizeof(float));
    memset(out, 0x7f, (size_t)p->n_out * sizeof(float));
    for (int i = 0; i < p->n_in; i++) {
        bool is_mask = i == 3 && (p->c.mask == GIVEN || p->c.mask == NOTHING);
        int bytes = is_mask ? 1 : p->c.full ? 4 : 2;
        in[i] = TC_BUF(p->data[i], bytes * p->n[i]);
    }
    tc_bufs ins = {in, p->n_in};
    if (tc_run(p->program, ins, TC_BUFS(TC_BUF(out, p->n_out)))) {
        wrong = -1;
    }
    for (int64_t row = 0; row < p->c.heads * p->c.queries && wrong >= 0; row++) {
        wrong += wrong_in_row(p, row / p->c.queries, row % p->c.queries, out);
    }
    free(out);
    return wrong;
}

/* ---- every form ---- */

static const attention cases[] = {
    {.name = "plain", 2, 128, 128, 64, 64},
    {.name = "three tiles", 2, 300, 200, 64, 64},
    {.name = "scores in f32", 1, 130, 384, 64, 64, .wide = true},
    {.name = "wide heads", 1, 96, 136, 256, 256, .wide = true},
    {.name = "heads of 80 and 40", 2, 65, 127, 80, 40, .half = true},
    {.name = "heads of 16", 4, 129, 257, 16, 16, .mask = GIVEN},
    {.name = "heads of 128, a bias", 1, 63, 129, 128, 128, .mask = BIAS, .turned = true},
    {.name = "a bias in f32", 2, 64, 65, 64, 64, .mask = BIAS, .wide = true, .half = true},
    {.name = "causal", 2, 200, 200, 64, 64, .mask = CAUSAL},
    {.name = "causal, cut", 1, 320, 320, 64, 64, .mask = CAUSAL, .after = true},
    {.name = "causal, cut far off", 1, 192, 330, 64, 64, .mask = CAUSAL, .cut = -0x1p99},
    {.name = "causal, nothing to leave out", 1, 192, 330, 64, 64, .mask = CAUSAL, .cut = -2},
    {.name = "rows without a key", 2, 70, 140, 64, 64, .mask = NOTHING, .half = true},
    {.name = "grouped heads", 4, 100, 90, 64, 64, .groups = 2, .mask = GIVEN},
    {.name = "grouped heads in one", 4, 100, 150, 64, 64, .groups = 2, .gate = true},
    {.name = "turned", 3, 80, 100, 64, 64, .turned = true, .gate = true},
    {.name = "f32, tails", 2, 70, 201, 40, 49, .full = true, .threads = true, .mask = BIAS},
    {.name = "f32, causal", 2, 200, 200, 64, 48, .full = true, .threads = true, .mask = CAUSAL},
    {.name = "f32, cut far off",
     1,
     140,
     210,
     64,
     64,
     .full = true,
     .threads = true,
     .mask = CAUSAL,
     .cut = -0x1p99},
    {.name = "f32, nothing to leave out",
     1,
     140,
     210,
     64,
     64,
     .full = true,
     .threads = true,
     .mask = CAUSAL,
     .cut = -2},
    {.name = "f32, rows without a key",
     3,
     70,
     140,
     24,
     32,
     .full = true,
     .threads = true,
     .mask = NOTHING},
    {.name = "a call with rows without a key",
     2,
     70,
     140,
     64,
     64,
     .mask = NOTHING,
     .half = true,
     .wide = true,
     .call = true},
    {.name = "f32, a call with rows without a key",
     3,
     70,
     140,
     24,
     32,
     .full = true,
     .threads = true,
     .mask = NOTHING,
     .call = true},
    {.name = "f32, wide heads", 1, 65, 127, 256, 256, .full = true, .threads = true},
    {.name = "f32, turned",
     3,
     80,
     100,
     32,
     64,
     .full = true,
     .threads = true,
     .turned = true,
     .gate = true},
    {.name = "f32, grouped heads", 4, 100, 90, 64, 64, .groups = 2, .full = true, .threads = true},
    {.name = "halves by threads",
     2,
     100,
     150,
     20,
     36,
     .half = true,
     .threads = true,
     .mask = CAUSAL},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* Halves are by threads alone where there is no matrix unit. */
static bool is_without_unit(attention c)
{
    return c.threads && !c.full;
}

/* All such cases in one batch. */
static tc_status compile_cases(tc_ctx *ctx, problem *problems, bool without_unit)
{
    tc_job jobs[CASES];
    int n = 0;
    memset(jobs, 0, sizeof(jobs));
    memset(problems, 0, sizeof(*problems) * CASES);
    for (int i = 0; i < CASES; i++) {
        if (is_without_unit(cases[i]) == without_unit) {
            make(&problems[i], ctx, cases[i]);
            jobs[n].inputs = (tc_tensors){problems[i].in, problems[i].n_in};
            jobs[n].outputs = (tc_tensors){&problems[i].y, 1};
            jobs[n++].program = &problems[i].program;
        }
    }
    tc_status status = tc_compile_many(jobs, n, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    return status;
}

/* One kernel, and no array of scores; of a call that is given a mask another one, of rows that see
 * a key. */
static void check_plan(const problem *p)
{
    tc_program_info info;
    const char *text = explained(p->program);
    bool casts = p->c.groups > 0; /* heads by groups are cast by a second kernel */
    CHECK_MSG(strstr(text, "attention by steps"), "%s:\n%s", p->c.name, text);
    CHECK_MSG((strstr(text, "by steps of 128 threads") != NULL) == p->c.threads, "%s:\n%s",
              p->c.name, text);
    CHECK_MSG((strstr(text, "longest first") != NULL) == (p->c.mask == CAUSAL), "%s:\n%s",
              p->c.name, text);
    bool is_bf16 = !p->c.half && !p->c.wide && !p->c.threads; /* scaled and rounded at once */
    CHECK_MSG(!is_bf16 || strstr(tc_source(p->program), "= tc_mul_bf16("), "%s", p->c.name);
    tc_program_get_info(p->program, &info);
    CHECK_MSG(info.n_kernels == 1 + casts + p->c.call, "%s: %d kernels", p->c.name, info.n_kernels);
    CHECK_MSG(info.arena_bytes <= (casts       ? 4 * p->n_out
                                   : p->c.call ? 512
                                               : 0),
              "%s: %lld bytes of workspace", p->c.name, (long long)info.arena_bytes);
}

static void check_case(const problem *p, int seeds)
{
    check_plan(p);
    for (emu_model_seed = 1; emu_model_seed <= (unsigned)seeds; emu_model_seed++) {
        int64_t wrong = run(p);
        CHECK_MSG(wrong == 0, "%s, seed %u: %d of %d wrong%s%s", p->c.name, emu_model_seed,
                  (int)wrong, (int)p->n_out, wrong < 0 ? ": " : "", wrong < 0 ? emu_why : "");
    }
}

TEST(attention_of_every_form)
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
                check_case(&problems[i], i < 3 ? 3 : 1);
            }
        }
        for (int i = 0; i < CASES; i++) {
            free_problem(&problems[i]);
        }
        tc_ctx_free(ctx);
    }
}

/* What else would be cut in parts, or be products of halves, which keep pairs: plans alone. */
TEST(long_rows_and_fast_math_keep_no_pairs)
{
    static const attention plain =
        {.name = "f32, long", 2, 1280, 4096, 64, 64, .full = true, .threads = true};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int fast = 0; fast < 2; fast++) {
        static problem p;
        tc_ctx *ctx = open_context_for("emulated", 0, fast ? TC_MATH_FAST : TC_MATH_EXACT);
        REQUIRE(ctx);
        make(&p, ctx, plain);
        tc_tensors in = {p.in, p.n_in}, out = {&p.y, 1};
        REQUIRE(!tc_compile_fn(in, out, NULL, &p.program));
        check_plan(&p);
        free_problem(&p);
        tc_ctx_free(ctx);
    }
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
