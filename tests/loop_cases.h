/* tests/loop_cases.h - repetitions, loops that stop by their values, branches and their gradients,
 * run on a backend and compared: with the reference evaluator, and with the same steps unrolled.
 *
 * Include after inside.h and tc_test.h. */
#ifndef TESTS_LOOP_CASES_H
#define TESTS_LOOP_CASES_H

#include "same.h"

enum { OUTPUTS = 4, ROOM = 4096 };

static tc_ctx *make_ctx(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1};
    if (strcmp(backend, "interp") && strcmp(backend, "cpu")) {
        o.fallback = TC_FALLBACK_REFUSE;
    }
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static tc_tensor ramp(tc_ctx *ctx, tc_dtype t, int rank, const int64_t *sizes)
{
    int64_t n = 1;
    static double values[ROOM];
    for (int i = 0; i < rank; i++) {
        n *= sizes[i];
    }
    for (int64_t i = 0; i < n; i++) {
        values[i] = (double)((i * 7 + 3) % 11) / 8 - 0.5;
    }
    int64_t numbers[8];
    for (int i = 0; i < rank; i++) {
        numbers[i] = sizes[i];
    }
    tc_tensor flat = tc_copy_in(ctx, values, TC_F64, n);
    return tc_cast(tc_reshape_at(flat, rank, numbers, TC_HERE), t);
}
#define RAMP(ctx, t, ...)                                                                          \
    ramp((ctx), (t), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                    \
         (int64_t[]){__VA_ARGS__})

/* A repetition, done by tc_scan or step by step. */
typedef struct steps {
    tc_ctx *ctx;
    bool unrolled;
    tc_tensor held[2]; /* for its body */
} steps;

static tc_tensor element(tc_tensor x, int64_t at)
{
    int64_t sizes[8];
    for (int i = 1; i < tc_rank(x); i++) {
        sizes[i - 1] = tc_size(x, i);
    }
    return tc_reshape_at(tc_slice(x, 0, at, at + 1, 1), tc_rank(x) - 1, sizes, TC_HERE);
}

static void repeat(const steps *s, tc_tensors init, tc_tensors xs, int64_t length, bool reverse,
                   tc_scan_body body, tc_tensor *last, tc_tensor *ys, int n_ys)
{
    tc_tensor(*rows)[ROOM] = NULL;
    tc_tensor carry[8], x[8], next[8], y[8];
    if (!s->unrolled) {
        tc_status status = tc_scan(init, xs, length, reverse, body, (void *)(uintptr_t)s, last, ys,
                                   n_ys);
        CHECK_MSG(!status, "%s", tc_ctx_error(s->ctx));
        return;
    }
    int64_t n = length ? length : tc_size(xs.items[0], 0);
    rows = malloc(OUTPUTS * sizeof(*rows));
    REQUIRE(rows);
    for (int i = 0; i < init.n; i++) {
        carry[i] = init.items[i];
    }
    for (int64_t step = 0; step < n; step++) {
        int64_t at = reverse ? n - 1 - step : step;
        for (int i = 0; i < xs.n; i++) {
            x[i] = element(xs.items[i], at);
        }
        CHECK_EQ_INT(body((void *)(uintptr_t)s, carry, x, next, y), TC_OK);
        for (int i = 0; i < init.n; i++) {
            carry[i] = next[i];
        }
        for (int i = 0; i < n_ys; i++) {
            rows[i][at] = tc_unsqueeze(y[i], 0);
        }
    }
    for (int i = 0; i < init.n && last; i++) {
        last[i] = carry[i];
    }
    for (int i = 0; i < n_ys; i++) {
        ys[i] = tc_cat(TC_TENSORS_N(rows[i], (int)n), 0);
    }
    free(rows);
}

/* ---- the cases ---- */

/* A filter of second order, in transposed direct form. */
static tc_status filter_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                             tc_tensor *y)
{
    (void)user;
    y[0] = tc_add(tc_mul(x[0], 0.2f), c[0]);
    next[0] = tc_add(tc_sub(tc_mul(x[0], 0.4f), tc_mul(y[0], -0.7f)), c[1]);
    next[1] = tc_sub(tc_mul(x[0], 0.2f), tc_mul(y[0], 0.3f));
    return TC_OK;
}

static int build_filter(steps *s, tc_tensor *out)
{
    tc_tensor zero = tc_full(s->ctx, 0, TC_F32), last[2];
    tc_tensor x = RAMP(s->ctx, TC_F32, 33);
    repeat(s, TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter_body, last, out, 1);
    out[1] = last[0];
    out[2] = tc_mul(last[1], 3);
    return 3;
}

/* A recurrent layer, whose weights are outside. */
static tc_status layer_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                            tc_tensor *y)
{
    const steps *s = user;
    tc_tensor h = tc_tanh(tc_add(tc_add(tc_matmul(c[0], s->held[0]), x[0]), s->held[1]));
    next[0] = h;
    y[0] = tc_sum(h, TC_AXES(1), false);
    y[1] = tc_softmax(h, -1);
    return TC_OK;
}

static int build_layer(steps *s, tc_tensor *out)
{
    tc_tensor last;
    s->held[0] = tc_transpose(RAMP(s->ctx, TC_F32, 9, 9), 0, 1);
    s->held[1] = tc_mul(RAMP(s->ctx, TC_F32, 9), 2);
    tc_tensor x = tc_permute(RAMP(s->ctx, TC_F32, 3, 9, 12), 2, 0, 1);
    repeat(s, TC_TENSORS(RAMP(s->ctx, TC_F32, 3, 9)), TC_TENSORS(x), 12, true, layer_body, &last,
           out, 2);
    out[2] = tc_sum(last, TC_ALL, false);
    out[3] = tc_sub(out[0], tc_mean(out[0], TC_AXES(0), true));
    return 4;
}

/* Carries that change places; no input. */
static tc_status fibonacci_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                                tc_tensor *y)
{
    (void)user;
    (void)x;
    next[0] = c[1];
    next[1] = tc_add(c[0], c[1]);
    next[2] = c[2];
    y[0] = c[0];
    return TC_OK;
}

static int build_fibonacci(steps *s, tc_tensor *out)
{
    tc_tensor last[3], unread[1];
    tc_tensor zero = tc_full(s->ctx, 0, TC_U64), one = tc_full(s->ctx, 1, TC_U64);
    repeat(s, TC_TENSORS(zero, one, RAMP(s->ctx, TC_BF16, 5)), TC_TENSORS_N(NULL, 0), 40, false,
           fibonacci_body, last, unread, 1);
    out[0] = last[0];
    out[1] = last[1];
    out[2] = last[2];
    out[3] = last[1];
    return 4;
}

/* No carry; an output that is the input, one that is held, and the same twice. */
static tc_status map_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    const steps *s = user;
    (void)c;
    (void)next;
    y[0] = x[0];
    y[1] = s->held[0];
    y[2] = tc_gather(s->held[0], 0, x[1]);
    return TC_OK;
}

static int build_map(steps *s, tc_tensor *out)
{
    static const int32_t places[12] = {0, 1, 2, 2, 1, 0, -1, -2, 0, 1, 1, 1};
    static const float strided[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    tc_tensor index = tc_copy_in(s->ctx, places, TC_I32, 6, 2);
    tc_tensor x = tc_borrow_strided(s->ctx, strided, TC_F32, 2, ((int64_t[]){6, 2}),
                                    ((int64_t[]){4, 1}));
    s->held[0] = RAMP(s->ctx, TC_F16, 3);
    repeat(s, TC_TENSORS_N(NULL, 0), TC_TENSORS(x, index), 0, false, map_body, NULL, out, 3);
    out[3] = out[0];
    return 4;
}

/* Repetitions within repetitions, which read what is outside at each depth. */
static tc_status cell_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    const steps *s = user;
    next[0] = tc_add(tc_mul(c[0], s->held[1]), x[0]);
    y[0] = tc_maximum(next[0], s->held[0]);
    return TC_OK;
}

static tc_status row_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    steps inner = *(const steps *)user;
    inner.held[1] = tc_mul(c[0], 0.5f);
    tc_tensor begin = tc_sum(tc_mul(x[0], inner.held[0]), TC_ALL, false), cells;
    repeat(&inner, TC_TENSORS(begin), TC_TENSORS(x[0]), 0, true, cell_body, next, &cells, 1);
    y[0] = tc_add(cells, c[0]);
    return TC_OK;
}

static int build_nested(steps *s, tc_tensor *out)
{
    s->held[0] = RAMP(s->ctx, TC_F32, 1);
    s->held[0] = tc_sum(s->held[0], TC_ALL, false);
    tc_tensor x = RAMP(s->ctx, TC_F32, 5, 7);
    repeat(s, TC_TENSORS(tc_sum(x, TC_ALL, false)), TC_TENSORS(x), 0, false, row_body, &out[1], out,
           1);
    return 2;
}

/* Sums that are cut in parts, outside and within; temporaries of a step. */
static tc_status large_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                            tc_tensor *y)
{
    const steps *s = user;
    tc_tensor sum = tc_sum(tc_mul(s->held[0], c[0]), TC_ALL, false);
    next[0] = tc_add(tc_mul(c[0], 0.5f), x[0]);
    next[1] = tc_add(c[1], sum);
    y[0] = tc_max(tc_mul(s->held[0], x[0]), TC_ALL, false);
    return TC_OK;
}

static int build_large(steps *s, tc_tensor *out)
{
    tc_tensor row = RAMP(s->ctx, TC_F32, 700), last[2], x = RAMP(s->ctx, TC_F32, 3);
    s->held[0] = tc_mul(row, tc_reshape(row, 700, 1));
    tc_tensor all = tc_sum(tc_mul(s->held[0], 2), TC_ALL, false);
    repeat(s, TC_TENSORS(all, all), TC_TENSORS(x), 0, false, large_body, last, out, 1);
    out[1] = last[0];
    out[2] = last[1];
    return 3;
}

/* One after the other: what the first gives the second takes. One step only. */
static int build_chain(steps *s, tc_tensor *out)
{
    tc_tensor x = RAMP(s->ctx, TC_F32, 20), last[2], first;
    tc_tensor zero = tc_sum(x, TC_ALL, false);
    repeat(s, TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter_body, last, &first, 1);
    repeat(s, TC_TENSORS(last[1], last[0]), TC_TENSORS(tc_add(first, x)), 0, true, filter_body,
           last, out, 1);
    repeat(s, TC_TENSORS(last[0], zero), TC_TENSORS(tc_slice(x, 0, 3, 4, 1)), 1, false, filter_body,
           last, out + 1, 1);
    out[2] = last[1];
    return 3;
}

typedef struct loop_case {
    const char *name;
    int (*build)(steps *s, tc_tensor *out);
    double error; /* relative, of sums in another order than the reference's */
} loop_case;
static const loop_case cases[] = {{"filter", build_filter, 0},       {"layer", build_layer, 1e-5},
                                  {"fibonacci", build_fibonacci, 0}, {"map", build_map, 0},
                                  {"nested", build_nested, 1e-5},    {"large", build_large, 1e-3},
                                  {"chain", build_chain, 1e-5}};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* ---- the same bits ---- */

typedef struct values {
    int n;
    tc_dtype dtype[OUTPUTS];
    int64_t count[OUTPUTS];
    char bytes[OUTPUTS][ROOM * 8];
    char judged[OUTPUTS][ROOM * 8];
    tc_program_info info;
} values;

static void run_case(const loop_case *c, const char *backend, bool unrolled, values *v)
{
    steps s = {make_ctx(backend), unrolled, {TC_NONE, TC_NONE}};
    tc_tensor out[OUTPUTS];
    tc_program *f = NULL;
    v->n = c->build(&s, out);
    tc_compile_fn(TC_TENSORS_N(NULL, 0), TC_TENSORS_N(out, v->n), NULL, &f);
    CHECK_MSG(f, "%s: %s", c->name, tc_ctx_error(s.ctx));
    REQUIRE(f);
    tc_buf bufs[OUTPUTS];
    tci_node *roots[OUTPUTS];
    void *judged[OUTPUTS];
    for (int i = 0; i < v->n; i++) {
        v->dtype[i] = tc_dtype_of(out[i]);
        v->count[i] = tc_count(out[i]);
        bufs[i] = (tc_buf){v->bytes[i], v->count[i], (int)v->dtype[i], false, 0, NULL, NULL};
        roots[i] = tci_handle_node(out[i]);
        judged[i] = v->judged[i];
    }
    for (int again = 0; again < 3; again++) { /* operands are where they were */
        memset(v->bytes, 0x5a, sizeof(v->bytes));
        CHECK_EQ_INT(tc_run(f, ((tc_bufs){NULL, 0}), ((tc_bufs){bufs, v->n})), TC_OK);
    }
    CHECK_EQ_INT(tci_reference_eval(NULL, NULL, 0, roots, judged, v->n, false), TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &v->info), TC_OK);
    tc_program_free(f);
    tc_ctx_free(s.ctx);
}

static bool close_to(tc_dtype t, const void *a, const void *b, int64_t n, double error)
{
    bool close = t == TC_F32;
    for (int64_t i = 0; i < n && close; i++) {
        float x = ((const float *)a)[i], y = ((const float *)b)[i];
        close = fabs((double)x - y) <= error * (1 + fabs((double)x));
    }
    return close;
}

static void check_reference(const loop_case *c, const char *backend, const values *v)
{
    for (int k = 0; k < v->n; k++) {
        tc_dtype t = v->dtype[k];
        CHECK_MSG(same_bits(t, v->bytes[k], v->judged[k], v->count[k]) ||
                      close_to(t, v->bytes[k], v->judged[k], v->count[k], c->error),
                  "%s on %s: output %d differs from the reference", c->name, backend, k);
    }
}

/* ---- while, and branches ---- */

/* Steps of Collatz for each start, while one is not at 1; and how many rounds that were. */
static tc_status collatz_test(void *user, const tc_tensor *c, tc_tensor *go)
{
    (void)user;
    *go = tc_any(tc_ne(c[0], 1), TC_ALL, false);
    return TC_OK;
}

static tc_status collatz_body(void *user, const tc_tensor *c, tc_tensor *next)
{
    (void)user;
    tc_tensor odd = tc_eq(tc_bitwise_and(c[0], 1), 1), done = tc_eq(c[0], 1);
    tc_tensor moved = tc_where(odd, tc_add(tc_mul(c[0], 3), 1), tc_floor_divide(c[0], 2));
    next[0] = tc_where(done, c[0], moved);
    next[1] = tc_add(c[1], tc_where(done, 0, 1));
    next[2] = tc_add(c[2], 1);
    return TC_OK;
}

/* Reads a table at its counter, which never passes the end. */
static tc_status walk_test(void *user, const tc_tensor *c, tc_tensor *go)
{
    const tc_tensor *table = user;
    *go = tc_lt(tc_sum(c[0], TC_ALL, false), tc_size(*table, 0));
    return TC_OK;
}

static tc_status walk_body(void *user, const tc_tensor *c, tc_tensor *next)
{
    const tc_tensor *table = user;
    next[0] = tc_add(c[0], 1);
    next[1] = tc_add(c[1], tc_gather(*table, 0, c[0]));
    return TC_OK;
}

static void check_while(const char *backend)
{
    static const int64_t starts[6] = {27, 1, 2, 7, 97, 871};
    static const int64_t expected[6] = {111, 0, 1, 16, 118, 178};
    tc_ctx *ctx = make_ctx(backend);
    tc_tensor x = tc_input(ctx, "x", TC_I64, 6), zero = tc_full(ctx, 0, TC_I64), last[3];
    tc_tensor none = tc_mul(x, 0);
    REQUIRE(tc_while(TC_TENSORS(x, none, zero), 0, collatz_test, collatz_body, NULL, last) ==
            TC_OK);
    tc_program *f = NULL;
    CHECK_MSG(!tc_compile_fn(TC_TENSORS(x), TC_TENSORS(last[1], last[2]), NULL, &f), "%s",
              tc_error(last[1]));
    REQUIRE(f);
    for (int n = 6; n >= 2; n -= 4) { /* an even number of rounds, and an odd one, and none */
        int64_t in[6], out[6], rounds = -1;
        for (int i = 0; i < 6; i++) {
            in[i] = i < n ? starts[i] : 1;
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(TC_BUF(out, 6), TC_BUF(&rounds, 1))),
                     TC_OK);
        for (int i = 0; i < 6; i++) {
            CHECK_EQ_INT(out[i], i < n ? expected[i] : 0);
        }
        CHECK_EQ_INT(rounds, n == 6 ? 178 : 111);
        in[0] = 1;
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(TC_BUF(out, 6), TC_BUF(&rounds, 1))),
                     TC_OK);
        CHECK_EQ_INT(rounds, n == 6 ? 178 : 0);
    }
    tc_program_free(f);
    int64_t out = 0;
    for (int64_t most = 1; most < 7; most++) {
        tc_tensor table = tc_copy_in(ctx, starts, TC_I64, 6), place = tc_full(ctx, 0, TC_I64, 1);
        REQUIRE(tc_while(TC_TENSORS(place, place), most == 6 ? 0 : most, walk_test, walk_body,
                         &table, last) == TC_OK);
        CHECK_MSG(tc_read(last[1], &out, 1) == TC_OK, "%s", tc_error(last[1]));
        int64_t sum = 0;
        for (int i = 0; i < most; i++) {
            sum += starts[i];
        }
        CHECK_EQ_INT(out, sum);
    }
    tc_ctx_free(ctx);
}

static tc_status root_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_sqrt(x[0]);
    y[1] = tc_sum(tc_mul(x[0], x[1]), TC_ALL, false);
    return TC_OK;
}

static tc_status negative_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_mul(tc_neg(x[0]), x[1]);
    y[1] = tc_sum(x[1], TC_ALL, false);
    return TC_OK;
}

/* The branch that is not taken computes nothing: no NaN of its roots gets into a gradient. */
static void check_branch(const char *backend, bool positive)
{
    tc_ctx *ctx = make_ctx(backend);
    static const float given[2][3] = {{-1, -4, -9}, {1, 4, 9}};
    tc_tensor x = tc_copy_in(ctx, given[positive], TC_F32, 3), w = RAMP(ctx, TC_F32, 3), y[2];
    tc_tensor all = tc_all(tc_gt(x, 0), TC_ALL, false), grads[2];
    REQUIRE(tc_cond(all, TC_TENSORS(x, w), root_branch, negative_branch, NULL, y, 2) == TC_OK);
    tc_tensor loss = tc_add(tc_sum(tc_mul(y[0], w), TC_ALL, false), tc_mul(y[1], 2));
    tc_tensor wanted[2] = {x, w};
    CHECK_MSG(!tc_grad(loss, wanted, 2, grads), "%s", tc_ctx_error(ctx));
    float out[3], sum, gx[3], gw[3], weights[3];
    CHECK_EQ_INT(tc_read(w, weights, 3), TC_OK);
    CHECK_MSG(tc_read(y[0], out, 3) == TC_OK && tc_read(y[1], &sum, 1) == TC_OK, "%s",
              tc_error(y[0]));
    CHECK_MSG(tc_read(grads[0], gx, 3) == TC_OK && tc_read(grads[1], gw, 3) == TC_OK, "%s",
              tc_error(grads[0]));
    tc_tensor fresh[2]; /* without values */
    REQUIRE(tc_cond(all, TC_TENSORS(x, w), root_branch, negative_branch, NULL, fresh, 2) == TC_OK);
    tci_node *root = tci_handle_node(tc_mul(fresh[0], 2));
    float judged[3];
    void *to = judged;
    CHECK_EQ_INT(tci_reference_eval(NULL, NULL, 0, &root, &to, 1, false), TC_OK);
    float total = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(judged[i] == 2 * out[i]);
        float a = given[positive][i], b = weights[i], y0 = positive ? sqrtf(a) : -a * b;
        total += positive ? a * b : b;
        CHECK_CLOSE(out[i], y0, 1e-6);
        CHECK_CLOSE(gx[i], positive ? b / (2 * sqrtf(a)) + 2 * b : -b * b, 1e-5);
        CHECK_CLOSE(gw[i], positive ? y0 + 2 * a : y0 - a * b + 2, 1e-5);
    }
    CHECK_CLOSE(sum, total, 1e-5);
    tc_ctx_free(ctx);
}

/* ---- gradients ---- */

enum { PARTS = 6 };

/* A loss of a case, and its gradients for leaves of it: those of the repetition and those of the
 * unrolled steps. */
typedef struct gradient_case {
    const char *name;
    int (*build)(steps *s, tc_tensor *wanted, tc_tensor *loss);
} gradient_case;

static tc_status weigh_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                            tc_tensor *y)
{
    const steps *s = user;
    tc_tensor h = tc_tanh(tc_add(tc_matmul(c[0], s->held[0]), tc_mul(x[0], s->held[1])));
    next[0] = h;
    next[1] = tc_add(c[1], 1);
    next[2] = tc_mul(c[2], tc_mean(h, TC_ALL, false));
    y[0] = tc_mul(tc_sum(h, TC_AXES(1), false), tc_cast(c[1], TC_F32));
    y[1] = x[0];
    return TC_OK;
}

/* All that leads: carries, inputs, held values; a carry that is no float. */
static int weigh(steps *s, tc_tensor *wanted, tc_tensor *loss)
{
    tc_tensor last[3], ys[2], count = tc_full(s->ctx, 0, TC_I32);
    wanted[0] = RAMP(s->ctx, TC_F32, 3, 5);
    wanted[1] = RAMP(s->ctx, TC_F32, 8, 3, 5);
    wanted[2] = s->held[0] = RAMP(s->ctx, TC_F32, 5, 5);
    wanted[3] = s->held[1] = RAMP(s->ctx, TC_F32, 5);
    wanted[4] = tc_sum(RAMP(s->ctx, TC_F32, 4), TC_ALL, false);
    repeat(s, TC_TENSORS(wanted[0], count, wanted[4]), TC_TENSORS(tc_mul(wanted[1], 2)), 0, true,
           weigh_body, last, ys, 2);
    *loss = tc_add(tc_sum(tc_mul(ys[0], ys[0]), TC_ALL, false),
                   tc_mul(last[2], tc_sum(last[0], TC_ALL, false)));
    return 5;
}

/* Only the last carry, of a repetition within one. */
static int within(steps *s, tc_tensor *wanted, tc_tensor *loss)
{
    tc_tensor ys, last;
    wanted[0] = RAMP(s->ctx, TC_F32, 4, 3);
    wanted[1] = s->held[0] = tc_sum(RAMP(s->ctx, TC_F32, 2), TC_ALL, false);
    repeat(s, TC_TENSORS(tc_sum(wanted[0], TC_ALL, false)), TC_TENSORS(wanted[0]), 0, false,
           row_body, &last, &ys, 1);
    *loss = last;
    return 2;
}

/* One step, whose rows are as many as those that take turns. */
static int once(steps *s, tc_tensor *wanted, tc_tensor *loss)
{
    tc_tensor last[3], ys[2], count = tc_full(s->ctx, 1, TC_I32);
    wanted[0] = RAMP(s->ctx, TC_F32, 3, 5);
    s->held[0] = RAMP(s->ctx, TC_F32, 5, 5);
    s->held[1] = RAMP(s->ctx, TC_F32, 5);
    repeat(s, TC_TENSORS(wanted[0], count, tc_full(s->ctx, 1, TC_F32)),
           TC_TENSORS(tc_slice(RAMP(s->ctx, TC_F32, 8, 3, 5), 0, 2, 3, 1)), 0, true, weigh_body,
           last, ys, 2);
    *loss = tc_add(tc_sum(tc_mul(last[0], last[0]), TC_ALL, false), tc_sum(ys[0], TC_ALL, false));
    return 1;
}

static const gradient_case gradient_cases[] = {{"weigh", weigh},
                                               {"within", within},
                                               {"once", once}};

/* second: the gradients of the sum of squares of the first ones. */
static int run_gradient(const gradient_case *c, const char *backend, bool unrolled, bool second,
                        float *out)
{
    steps s = {make_ctx(backend), unrolled, {TC_NONE, TC_NONE}};
    tc_tensor wanted[PARTS], grads[PARTS], loss;
    int n = c->build(&s, wanted, &loss), total = 0;
    CHECK_MSG(!tc_grad(loss, wanted, n, grads), "%s: %s", c->name, tc_ctx_error(s.ctx));
    if (second) {
        loss = tc_sum(tc_mul(grads[0], grads[0]), TC_ALL, false);
        for (int i = 1; i < n; i++) {
            loss = tc_add(loss, tc_sum(tc_mul(grads[i], grads[i]), TC_ALL, false));
        }
        CHECK_MSG(!tc_grad(loss, wanted, n, grads), "%s: %s", c->name, tc_ctx_error(s.ctx));
    }
    tc_program *f = NULL;
    tc_buf bufs[PARTS];
    for (int i = 0; i < n; i++) {
        bufs[i] = (tc_buf){out + total, tc_count(grads[i]), TC_F32, false, 0, NULL, NULL};
        total += (int)tc_count(grads[i]);
    }
    tc_compile_fn(TC_TENSORS_N(NULL, 0), TC_TENSORS_N(grads, n), NULL, &f);
    CHECK_MSG(f, "%s: %s", c->name, tc_ctx_error(s.ctx));
    REQUIRE(f && total < ROOM);
    CHECK_EQ_INT(tc_run(f, ((tc_bufs){NULL, 0}), ((tc_bufs){bufs, n})), TC_OK);
    tc_program_free(f);
    tc_ctx_free(s.ctx);
    return total;
}

static void compare_gradients(const char *backend, bool second)
{
    static float looped[ROOM], unrolled[ROOM];
    for (int i = 0; i < 3; i++) {
        int n = run_gradient(&gradient_cases[i], backend, false, second, looped);
        CHECK_EQ_INT(run_gradient(&gradient_cases[i], backend, true, second, unrolled), n);
        float most = 0;
        for (int k = 0; k < n; k++) {
            most = fmaxf(most, fabsf(unrolled[k]));
        }
        CHECK(most > 1e-3f);
        for (int k = 0; k < n; k++) {
            CHECK_MSG(fabsf(looped[k] - unrolled[k]) <= 2e-5f * most,
                      "%s: gradient %d is %g, %g unrolled", gradient_cases[i].name, k,
                      (double)looped[k], (double)unrolled[k]);
        }
    }
}

#endif
