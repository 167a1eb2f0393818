/* Loops of little work are one launch: same bits as step by step and as the interpreter, in each
 * form that a carry can have; loops of much work, or that call the host, stay as they are.
 *
 * The judge is the body written out in plain C, or the interpreter, which runs round by round. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum { MOST = 4096, STEPS = 101, HIDDEN = 12 };

static tc_ctx *make_ctx(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static void fill(float *x, int n, int seed)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)((i * 7 + seed * 5 + 3) % 23) / 16 - 0.6f;
    }
}

static int n_loops(const tc_program *f)
{
    int n = 0;
    for (int i = 0; i < f->code->n_kernels; i++) {
        n += f->code->kernels[i].is_loop;
    }
    return n;
}

/* What one backend computes of a network: inputs and outputs in their order. */
typedef struct network {
    int n_inputs, n_outputs;
    tc_tensor inputs[6], outputs[6];
    int64_t sizes[6], given[6]; /* elements of outputs, and of inputs */
} network;

typedef void (*build_fn)(tc_ctx *ctx, network *n);

static float results[2][6][MOST];

/* Returns how many in-kernel loops the program has; -1: there is none. */
static int run(const char *backend, build_fn build, float out[6][MOST])
{
    static float in[6][MOST];
    tc_ctx *ctx = make_ctx(backend);
    network n = {0};
    tc_program *f = NULL;
    tc_buf bufs[6], outs[6];
    memset(out, 0, sizeof(results[0]));
    build(ctx, &n);
    tc_tensors inputs = {n.inputs, n.n_inputs}, outputs = {n.outputs, n.n_outputs};
    CHECK_MSG(!tc_compile_fn(inputs, outputs, NULL, &f), "%s", tc_error(n.outputs[0]));
    int fused = -1;
    if (f) {
        for (int i = 0; i < n.n_inputs; i++) {
            fill(in[i], MOST, i);
            bufs[i] = TC_BUF(in[i], (int)n.given[i]);
        }
        for (int i = 0; i < n.n_outputs; i++) {
            outs[i] = TC_BUF(out[i], (int)n.sizes[i]);
        }
        for (int twice = 0; twice < 2; twice++) {
            CHECK_MSG(!tc_run(f, (tc_bufs){bufs, n.n_inputs}, (tc_bufs){outs, n.n_outputs}), "%s",
                      tc_error(f));
        }
        fused = n_loops(f);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return fused;
}

/* Both backends give the same bits; the native program has so many in-kernel loops. */
static void compare(build_fn build, int loops)
{
    CHECK_EQ_INT(run("cpu", build, results[0]), loops);
    CHECK_EQ_INT(run("interp", build, results[1]), 0);
    for (int o = 0; o < 6; o++) {
        for (int i = 0; i < MOST; i++) {
            if (memcmp(&results[0][o][i], &results[1][o][i], sizeof(float))) {
                tct_fail(__FILE__, __LINE__, "output %d, element %d: %.9g native, %.9g interpreted",
                         o, i, results[0][o][i], results[1][o][i]);
                return;
            }
        }
    }
}

static tc_tensor give(tc_ctx *ctx, network *n, tc_tensor input, int64_t elements)
{
    (void)ctx;
    n->given[n->n_inputs] = elements;
    return n->inputs[n->n_inputs++] = input;
}

static void take(network *n, tc_tensor output, int64_t elements)
{
    n->sizes[n->n_outputs] = elements;
    n->outputs[n->n_outputs++] = output;
}

#define NEED_COMPILER                                                                              \
    if (run("cpu", build_filter, results[0]) < 0) {                                                \
        SKIP("no C compiler");                                                                     \
    }

/* ---- a filter ---- */

static tc_status filter(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                        tc_tensor *y)
{
    (void)user;
    y[0] = tc_add(tc_mul(x[0], 0.2f), c[0]);
    next[0] = tc_add(tc_sub(tc_mul(x[0], 0.4f), tc_mul(y[0], -0.3f)), c[1]);
    next[1] = tc_sub(tc_mul(x[0], 0.25f), tc_mul(y[0], 0.5f));
    return TC_OK;
}

static void build_filter(tc_ctx *ctx, network *n)
{
    tc_tensor x = give(ctx, n, tc_input(ctx, "x", TC_F32, STEPS), STEPS), last[2], y;
    tc_tensor zero = tc_full(ctx, 0, TC_F32);
    CHECK(!tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter, NULL, last, &y, 1));
    take(n, y, STEPS);
    take(n, last[0], 1);
    take(n, last[1], 1);
}

static void build_gradient(tc_ctx *ctx, network *n)
{
    tc_tensor x = give(ctx, n, tc_input(ctx, "x", TC_F32, STEPS), STEPS), last[2], y, g;
    tc_tensor zero = tc_full(ctx, 0, TC_F32);
    CHECK(!tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter, NULL, last, &y, 1));
    CHECK(!tc_grad(tc_sum(tc_square(y), TC_ALL, false), &x, 1, &g));
    take(n, g, STEPS);
}

TEST(a_filter_is_one_launch_with_the_bits_of_plain_c)
{
    float x[STEPS], s[2] = {0, 0};
    NEED_COMPILER
    compare(build_filter, 1);
    fill(x, STEPS, 0);
    for (int i = 0; i < STEPS; i++) {
        volatile float a = 0.2f * x[i], y = a + s[0], b = 0.4f * x[i], c = -0.3f * y, d = b - c;
        volatile float e = 0.25f * x[i], f = 0.5f * y;
        s[0] = d + s[1];
        s[1] = e - f;
        CHECK_CLOSE(results[0][0][i], y, 0);
    }
    CHECK_CLOSE(results[0][1][0], s[0], 0);
    CHECK_CLOSE(results[0][2][0], s[1], 0);
}

TEST(a_gradient_is_fused_too)
{
    NEED_COMPILER
    compare(build_gradient, 2);
}

/* ---- networks ---- */

static tc_status lstm(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    const tc_tensor *w = user;
    tc_tensor gates = tc_add(tc_matmul(w[0], x[0]), tc_matmul(w[1], c[0])), part[4];
    for (int i = 0; i < 4; i++) {
        part[i] = tc_slice(gates, 0, i * HIDDEN, (i + 1) * HIDDEN, 1);
    }
    next[1] = tc_add(tc_mul(tc_sigmoid(part[1]), c[1]),
                     tc_mul(tc_sigmoid(part[0]), tc_tanh(part[2])));
    next[0] = tc_mul(tc_sigmoid(part[3]), tc_tanh(next[1]));
    y[0] = next[0];
    return TC_OK;
}

static void build_lstm(tc_ctx *ctx, network *n)
{
    static tc_tensor w[2];
    enum { ROWS = 17 };
    tc_tensor xs = give(ctx, n, tc_input(ctx, "x", TC_F32, ROWS, 5), ROWS * 5), last[2], y, g[2];
    w[0] = give(ctx, n, tc_input(ctx, "w", TC_F32, 4 * HIDDEN, 5), 4 * HIDDEN * 5);
    w[1] = give(ctx, n, tc_input(ctx, "u", TC_F32, 4 * HIDDEN, HIDDEN), 4 * HIDDEN * HIDDEN);
    tc_tensor zero = tc_full(ctx, 0, TC_F32, HIDDEN);
    CHECK(!tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(xs), 0, false, lstm, w, last, &y, 1));
    CHECK(!tc_grad(tc_sum(tc_square(y), TC_ALL, false), w, 2, g));
    take(n, y, ROWS * HIDDEN);
    take(n, last[1], HIDDEN);
    take(n, g[0], 4 * HIDDEN * 5);
    take(n, g[1], 4 * HIDDEN * HIDDEN);
}

TEST(a_small_recurrent_network_and_its_gradient_are_fused)
{
    NEED_COMPILER
    compare(build_lstm, 2);
}

static tc_status normalize(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    (void)user;
    tc_tensor z = tc_add(tc_softmax(tc_add(c[0], x[0]), 0), c[1]);
    next[0] = z;
    next[1] = tc_max(tc_mul(z, 0.5), TC_ALL, false);
    y[0] = tc_sum(z, TC_ALL, false);
    return TC_OK;
}

/* Backwards, with reductions, carries of different sizes, and all rows of one. */
static void build_reductions(tc_ctx *ctx, network *n)
{
    enum { ROWS = 20, WIDE = 33 };
    tc_tensor xs = give(ctx, n, tc_input(ctx, "x", TC_F32, ROWS, WIDE), ROWS * WIDE), last[2], y;
    tc_tensor init = give(ctx, n, tc_input(ctx, "h", TC_F32, WIDE), WIDE), g;
    CHECK(!tc_scan(TC_TENSORS(init, tc_full(ctx, 0, TC_F32)), TC_TENSORS(xs), 0, true, normalize,
                   NULL, last, &y, 1));
    CHECK(!tc_grad(tc_sum(tc_mul(y, y), TC_ALL, false), &init, 1, &g));
    take(n, y, ROWS);
    take(n, last[0], WIDE);
    take(n, last[1], 1);
    take(n, g, WIDE);
}

TEST(reductions_of_small_arrays_are_fused)
{
    NEED_COMPILER
    compare(build_reductions, 2);
}

/* ---- loops in loops ---- */

static tc_status inner(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)user, (void)y;
    next[0] = tc_add(tc_mul(c[0], 0.5), x[0]);
    return TC_OK;
}

static tc_status outer(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    tc_tensor last;
    (void)user;
    tc_status status = tc_scan(TC_TENSORS(c[0]), TC_TENSORS(x[0]), 0, false, inner, NULL, &last,
                               NULL, 0);
    next[0] = tc_mul(last, 0.75);
    y[0] = tc_add(last, 1);
    return status;
}

static void build_nested(tc_ctx *ctx, network *n)
{
    enum { ROWS = 13, WIDE = 7 };
    tc_tensor xs = give(ctx, n, tc_input(ctx, "x", TC_F32, ROWS, WIDE), ROWS * WIDE), last, y;
    CHECK(!tc_scan(TC_TENSORS(tc_full(ctx, 1, TC_F32)), TC_TENSORS(xs), 0, false, outer, NULL,
                   &last, &y, 1));
    take(n, y, ROWS);
    take(n, last, 1);
}

static tc_status take_positive(void *user, const tc_tensor *in, tc_tensor *out)
{
    (void)user;
    out[0] = tc_mul(in[0], 3);
    return TC_OK;
}

static tc_status take_negative(void *user, const tc_tensor *in, tc_tensor *out)
{
    (void)user;
    out[0] = tc_sub(in[0], 0.25);
    return TC_OK;
}

static tc_status branch(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                        tc_tensor *y)
{
    (void)user;
    tc_status status = tc_cond(tc_lt(c[0], 0), TC_TENSORS(x[0]), take_positive, take_negative, NULL,
                               &y[0], 1);
    next[0] = tc_sub(y[0], tc_mul(c[0], 0.5));
    return status;
}

static void build_branches(tc_ctx *ctx, network *n)
{
    tc_tensor x = give(ctx, n, tc_input(ctx, "x", TC_F32, STEPS), STEPS), last, y;
    CHECK(!tc_scan(TC_TENSORS(tc_full(ctx, 1, TC_F32)), TC_TENSORS(x), 0, false, branch, NULL,
                   &last, &y, 1));
    take(n, y, STEPS);
    take(n, last, 1);
}

TEST(loops_and_branches_within_a_loop_are_fused)
{
    NEED_COMPILER
    compare(build_nested, 1);
    compare(build_branches, 1);
}

/* ---- loops that stop ---- */

static tc_status below(void *user, const tc_tensor *c, tc_tensor *go)
{
    *go = tc_lt(c[0], *(const tc_tensor *)user);
    return TC_OK;
}

static tc_status halve(void *user, const tc_tensor *c, tc_tensor *next)
{
    (void)user;
    next[0] = tc_add(c[0], 1);
    next[1] = tc_add(tc_mul(c[1], 0.5), c[2]);
    next[2] = tc_flip(c[1], 0);
    return TC_OK;
}

/* The host's own loop tells what is expected, after no, odd and even numbers of steps, and more
 * than a slice of them; a cap ends it too. */
TEST(a_loop_that_stops_is_one_launch)
{
    static const int steps[] = {0, 1, 2, 7, 100, 3000001};
    tc_ctx *ctx = make_ctx("cpu");
    tc_tensor limit = tc_input(ctx, "limit", TC_F32), v = tc_input(ctx, "v", TC_F32, 6), last[3];
    tc_program *f = NULL;
    NEED_COMPILER
    REQUIRE(
        !tc_while(TC_TENSORS(tc_full(ctx, 0, TC_F32), v, v), 2500000, below, halve, &limit, last));
    CHECK(!tc_compile_fn(TC_TENSORS(v, limit), TC_TENSORS(last[0], last[1], last[2]), NULL, &f));
    REQUIRE(f);
    CHECK_EQ_INT(n_loops(f), 1);
    for (int i = 0; i < (int)(sizeof(steps) / sizeof(steps[0])); i++) {
        float of = (float)steps[i], in[6], out[6], turned[6], count;
        float a[6], b[6];
        fill(in, 6, i);
        memcpy(a, in, sizeof(a));
        memcpy(b, in, sizeof(b));
        int n = steps[i] < 2500000 ? steps[i] : 2500000;
        for (int k = 0; k < n; k++) {
            float next[6], flip[6];
            for (int e = 0; e < 6; e++) {
                volatile float half = a[e] * 0.5f;
                next[e] = half + b[e];
                flip[e] = a[5 - e];
            }
            memcpy(a, next, sizeof(a));
            memcpy(b, flip, sizeof(b));
        }
        CHECK(!tc_run(f, TC_BUFS(TC_BUF(in, 6), TC_BUF(&of, 1)),
                      TC_BUFS(TC_BUF(&count, 1), TC_BUF(out, 6), TC_BUF(turned, 6))));
        CHECK_CLOSE(count, n, 0);
        CHECK(!memcmp(out, a, sizeof(a)) && !memcmp(turned, b, sizeof(b)));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static void *cancel_soon(void *call)
{
    usleep(20000);
    tc_call_cancel(call);
    return NULL;
}

static tc_status forever(void *user, const tc_tensor *c, tc_tensor *go)
{
    (void)user;
    *go = tc_ge(c[0], 0);
    return TC_OK;
}

static tc_status stay(void *user, const tc_tensor *c, tc_tensor *next)
{
    (void)user;
    next[0] = tc_abs(tc_mul(c[0], 0.5));
    return TC_OK;
}

TEST(a_fused_loop_is_cancelled_between_slices)
{
    tc_ctx *ctx = make_ctx("cpu");
    tc_tensor x = tc_input(ctx, "x", TC_F32), last;
    tc_program *f = NULL;
    tc_call *call = NULL;
    pthread_t other;
    float in = 1, out;
    NEED_COMPILER
    REQUIRE(!tc_while(TC_TENSORS(x), 0, forever, stay, NULL, &last));
    REQUIRE(!tc_compile_fn(TC_TENSORS(x), TC_TENSORS(last), NULL, &f) && !tc_call_make(f, &call));
    CHECK_EQ_INT(n_loops(f), 1);
    for (int i = 0; i < 2; i++) {
        in = 1;
        REQUIRE(!pthread_create(&other, NULL, cancel_soon, call));
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(&in, 1)), TC_BUFS(TC_BUF(&out, 1))),
                     TC_ERR_CANCELLED);
        pthread_join(other, NULL);
        in = -1; /* ends at once, and is not cancelled */
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(&in, 1)), TC_BUFS(TC_BUF(&out, 1))), TC_OK);
        CHECK_CLOSE(out, -1, 0);
    }
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- symbolic numbers of steps ---- */

TEST(one_fused_loop_serves_any_number_of_steps)
{
    tc_ctx *ctx = make_ctx("cpu");
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 2000)), last[2], y, g;
    tc_tensor zero = tc_full(ctx, 0, TC_F32);
    tc_program *f = NULL;
    NEED_COMPILER
    CHECK(!tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter, NULL, last, &y, 1));
    CHECK(!tc_grad(tc_sum(tc_mul(y, last[0]), TC_ALL, false), &x, 1, &g));
    CHECK(!tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, g), NULL, &f));
    REQUIRE(f);
    CHECK_EQ_INT(n_loops(f), 2);
    tc_ctx *other = make_ctx("interp");
    for (int n = 1; n < 200; n += 33) {
        float in[200], out[200], slope[200], ref[2][200];
        tc_program *plain = NULL;
        tc_tensor xs = tc_input(other, "x", TC_F32, n), l[2], ys, gs;
        tc_tensor none = tc_full(other, 0, TC_F32);
        fill(in, n, 1);
        CHECK(!tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n), TC_BUF(slope, n))));
        CHECK(!tc_scan(TC_TENSORS(none, none), TC_TENSORS(xs), 0, false, filter, NULL, l, &ys, 1));
        CHECK(!tc_grad(tc_sum(tc_mul(ys, l[0]), TC_ALL, false), &xs, 1, &gs));
        REQUIRE(!tc_compile_fn(TC_TENSORS(xs), TC_TENSORS(ys, gs), NULL, &plain));
        CHECK(
            !tc_run(plain, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(ref[0], n), TC_BUF(ref[1], n))));
        CHECK(!memcmp(out, ref[0], sizeof(float) * (size_t)n));
        for (int i = 0; i < n; i++) { /* the sum of a symbolic axis has another order */
            CHECK_CLOSE(slope[i], ref[1][i], 1e-4);
        }
        tc_program_free(plain);
    }
    tc_program_free(f);
    tc_ctx_free(other);
    tc_ctx_free(ctx);
}

/* ---- what stays as it is ---- */

static tc_status multiply(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    (void)x, (void)y;
    next[0] = tc_tanh(tc_matmul(*(const tc_tensor *)user, c[0]));
    return TC_OK;
}

TEST(a_loop_of_much_work_stays_many_launches)
{
    tc_ctx *ctx = make_ctx("cpu");
    tc_tensor w = tc_input(ctx, "w", TC_F32, 512, 512), h = tc_input(ctx, "h", TC_F32, 512, 64);
    tc_tensor last;
    tc_program *f = NULL;
    NEED_COMPILER
    REQUIRE(!tc_scan(TC_TENSORS(h), (tc_tensors){0}, 10, false, multiply, &w, &last, NULL, 0));
    REQUIRE(!tc_compile_fn(TC_TENSORS(w, h), TC_TENSORS(last), NULL, &f));
    CHECK_EQ_INT(n_loops(f), 0);
    CHECK_EQ_INT(f->code->n_repeats, 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- faults, reports, and no compiler ---- */

static tc_status pick(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    (void)y;
    tc_tensor row = tc_index_select(*(const tc_tensor *)user, 0, tc_reshape(x[0], 1));
    next[0] = tc_add(c[0], tc_sum(row, TC_ALL, false));
    return TC_OK;
}

TEST(an_index_outside_is_told_and_the_next_run_is_right)
{
    tc_ctx *ctx = make_ctx("cpu");
    tc_tensor table = tc_input(ctx, "table", TC_F32, 5), at = tc_input(ctx, "at", TC_I64, 4), last;
    tc_program *f = NULL;
    float values[5] = {1, 2, 4, 8, 16}, out;
    int64_t bad[4] = {0, 1, 5, 2}, good[4] = {0, 1, 4, -1};
    NEED_COMPILER
    REQUIRE(!tc_scan(TC_TENSORS(tc_full(ctx, 0, TC_F32)), TC_TENSORS(at), 0, false, pick, &table,
                     &last, NULL, 0));
    REQUIRE(!tc_compile_fn(TC_TENSORS(table, at), TC_TENSORS(last), NULL, &f));
    CHECK_EQ_INT(n_loops(f), 1);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(values, 5), TC_BUF(bad, 4)), TC_BUFS(TC_BUF(&out, 1))),
                 TC_ERR_INDEX);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(values, 5), TC_BUF(good, 4)), TC_BUFS(TC_BUF(&out, 1))),
                 TC_OK);
    CHECK_CLOSE(out, 35, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(explain_has_the_loop_as_one_call)
{
    tc_ctx *ctx = make_ctx("cpu");
    static char text[20000];
    network n = {0};
    tc_program *f = NULL;
    NEED_COMPILER
    build_filter(ctx, &n);
    REQUIRE(!tc_compile_fn((tc_tensors){n.inputs, n.n_inputs}, (tc_tensors){n.outputs, n.n_outputs},
                           NULL, &f));
    FILE *out = tmpfile();
    REQUIRE(out && !tc_explain(f, out));
    rewind(out);
    text[fread(text, 1, sizeof(text) - 1, out)] = 0;
    fclose(out);
    CHECK_MSG(strstr(text, "tc_k_loop_") != NULL, "%s", text);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Native code that cannot be built is interpreted: the in-kernel loop, and a family of them. */
TEST(a_fused_loop_is_interpreted_where_no_compiler_works)
{
    static float plain[6][MOST];
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "cpu",
                    .no_disk_cache = true,
                    .verify = 1,
                    .threads = 1,
                    .cc = "/bin/false"};
    tc_program *f = NULL, *family = NULL;
    tc_tensor last[2], y;
    network n = {0};
    float x[STEPS], a[STEPS], b[2], c[STEPS];
    fill(x, STEPS, 0);
    REQUIRE(run("interp", build_filter, plain) == 0 && !tc_ctx_make(&ctx, &o));
    build_filter(ctx, &n);
    CHECK(!tc_compile_fn(TC_TENSORS_N(n.inputs, 1), TC_TENSORS_N(n.outputs, 3), NULL, &f));
    tc_tensor any = tc_input(ctx, "any", TC_F32, TC_DIM("n", 1, 2000));
    tc_tensor zero = tc_full(ctx, 0, TC_F32);
    CHECK(!tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(any), 0, false, filter, NULL, last, &y, 1));
    CHECK(!tc_compile_fn(TC_TENSORS(any), TC_TENSORS(y), NULL, &family));
    REQUIRE(f && family);
    CHECK_EQ_INT(n_loops(f), 1);
    CHECK(!tc_run(f, TC_BUFS(TC_BUF(x, STEPS)),
                  TC_BUFS(TC_BUF(a, STEPS), TC_BUF(&b[0], 1), TC_BUF(&b[1], 1))));
    CHECK(!tc_run(family, TC_BUFS(TC_BUF(x, STEPS)), TC_BUFS(TC_BUF(c, STEPS))));
    CHECK(!memcmp(a, plain[0], sizeof(a)) && !memcmp(c, a, sizeof(c)));
    CHECK_CLOSE(b[0], plain[1][0], 0);
    tc_program_free(f);
    tc_program_free(family);
    tc_ctx_free(ctx);
}

TEST_MAIN
