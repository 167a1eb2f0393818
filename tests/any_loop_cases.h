/* tests/any_loop_cases.h - repetitions whose sizes are symbols: how many steps, the sizes of
 * carries, inputs, outputs and held values; and programs of known sizes that give the same bits.
 *
 * Include after inside.h and tc_test.h, with TC_DYNAMIC_SHAPES. */
#ifndef TESTS_ANY_LOOP_CASES_H
#define TESTS_ANY_LOOP_CASES_H

#include "same.h"

enum { ANY_WIDTH = 5, ANY_STEPS = 40, ANY_ROWS = 9, ANY_OUTS = 4 };
enum { ANY_MOST = ANY_STEPS * ANY_ROWS * ANY_WIDTH };

/* What a case is given: x [n, b, ANY_WIDTH], h [b, ANY_WIDTH], w [ANY_WIDTH, ANY_WIDTH]. */
typedef struct any_given {
    tc_ctx *ctx;
    tc_tensor x, h, w;
} any_given;

/* ---- the cases ---- */

/* Two carries; all rows of one are stored where gradients go back. */
static tc_status any_cell(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    const any_given *g = user;
    tc_tensor h = tc_tanh(tc_add(tc_matmul(c[0], g->w), x[0]));
    next[0] = h;
    next[1] = tc_add(c[1], tc_mul(h, 0.5f));
    y[0] = tc_softmax(tc_add(h, c[1]), -1);
    return TC_OK;
}

static int any_run_cell(const any_given *g, bool reverse, tc_tensor *out)
{
    tc_tensor last[2];
    tc_status status = tc_scan(TC_TENSORS(g->h, tc_mul(g->h, 0.5f)), TC_TENSORS(g->x), 0, reverse,
                               any_cell, (void *)(uintptr_t)g, last, out, 1);
    CHECK_MSG(!status, "%s", tc_error(out[0]));
    out[1] = last[0];
    out[2] = last[1];
    return 3;
}

static int build_forward(const any_given *g, tc_tensor *out)
{
    return any_run_cell(g, false, out);
}
static int build_backward(const any_given *g, tc_tensor *out)
{
    return any_run_cell(g, true, out);
}

/* As many steps as said, without inputs. */
static tc_status any_grow(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    const any_given *g = user;
    (void)x;
    next[0] = tc_add(tc_mul(c[0], 0.75f), g->h);
    y[0] = tc_max(next[0], TC_AXES(1), false);
    return TC_OK;
}

static int build_said(const any_given *g, tc_tensor *out)
{
    tc_status status = tc_scan(TC_TENSORS(g->h), TC_TENSORS_N(NULL, 0), tc_size(g->x, 0), false,
                               any_grow, (void *)(uintptr_t)g, &out[1], out, 1);
    CHECK_MSG(!status, "%s", tc_error(out[0]));
    return 2;
}

/* A repetition along the rows within one along the steps. */
static tc_status any_row(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                         tc_tensor *y)
{
    (void)user;
    next[0] = tc_add(tc_mul(c[0], 0.5f), x[0]);
    y[0] = tc_sub(next[0], x[1]);
    return TC_OK;
}

static tc_status any_rows(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    const any_given *g = user;
    tc_tensor cells;
    tc_status status = tc_scan(TC_TENSORS(c[0]), TC_TENSORS(x[0], g->h), 0, true, any_row, user,
                               next, &cells, 1);
    y[0] = tc_mul(cells, 2);
    return status;
}

static int build_nested(const any_given *g, tc_tensor *out)
{
    tc_tensor begin = tc_sum(g->w, TC_AXES(0), false);
    tc_status status = tc_scan(TC_TENSORS(begin), TC_TENSORS(g->x), 0, false, any_rows,
                               (void *)(uintptr_t)g, &out[1], out, 1);
    CHECK_MSG(!status, "%s", tc_error(out[0]));
    return 2;
}

/* Stops by its values, after an odd number of steps; and a branch. */
static tc_status any_inside(void *user, const tc_tensor *c, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(tc_sum(tc_cast(c[1], TC_F32), TC_ALL, false), 7);
    return TC_OK;
}

static tc_status any_square(void *user, const tc_tensor *c, tc_tensor *next)
{
    const any_given *g = user;
    next[0] = tc_add(tc_mul(c[0], 0.5f), g->h);
    next[1] = tc_add(c[1], 1);
    return TC_OK;
}

static tc_status any_taken(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_mul(x[0], x[0]);
    return TC_OK;
}

static tc_status any_refused(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_neg(x[0]);
    return TC_OK;
}

static int build_while(const any_given *g, tc_tensor *out)
{
    tc_tensor zero = tc_full(g->ctx, 0, TC_I32), go = tc_any(tc_gt(g->h, 0), TC_ALL, false);
    tc_status status = tc_while(TC_TENSORS(g->h, zero), 0, any_inside, any_square,
                                (void *)(uintptr_t)g, out);
    CHECK_MSG(!status, "%s", tc_error(out[0]));
    status = tc_cond(go, TC_TENSORS(out[0]), any_taken, any_refused, NULL, &out[2], 1);
    CHECK_MSG(!status, "%s", tc_error(out[2]));
    return 3;
}

/* All that leads back. */
static int build_gradient(const any_given *g, tc_tensor *out)
{
    tc_tensor made[ANY_OUTS], wanted[3] = {g->x, g->h, g->w};
    any_run_cell(g, true, made);
    tc_tensor loss = tc_add(tc_sum(tc_mul(made[0], made[0]), TC_ALL, false),
                            tc_sum(tc_mul(made[1], made[2]), TC_ALL, false));
    CHECK_MSG(!tc_grad(loss, wanted, 3, out), "%s", tc_error(loss));
    return 3;
}

typedef struct any_case {
    const char *name;
    int (*build)(const any_given *g, tc_tensor *out);
} any_case;
static const any_case any_cases[] = {{"forward", build_forward}, {"backward", build_backward},
                                     {"said", build_said},       {"nested", build_nested},
                                     {"while", build_while},     {"gradient", build_gradient}};

/* ---- any sizes, and these ---- */

typedef struct any_results {
    int64_t counts[ANY_OUTS];
    float values[ANY_OUTS][ANY_MOST];
} any_results;

static tc_ctx *any_ctx(const char *backend, const char *dir)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend,
                    .cache_dir = dir,
                    .no_disk_cache = !dir,
                    .verify = 1,
                    .reproducible = true,
                    .memory_cache_bytes = dir ? -1 : 0};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

/* n < 0: of any sizes. */
static tc_program *any_compile(tc_ctx *ctx, const any_case *c, int64_t n, int64_t b, int *n_out)
{
    int64_t steps = n < 0 ? TC_DIM("steps", 0, ANY_STEPS) : n;
    int64_t each = n < 0 ? TC_DIM("rows", 1, ANY_ROWS) : b;
    any_given g = {ctx, tc_input(ctx, "x", TC_F32, steps, each, ANY_WIDTH),
                   tc_input(ctx, "h", TC_F32, each, ANY_WIDTH),
                   tc_input(ctx, "w", TC_F32, ANY_WIDTH, ANY_WIDTH)};
    tc_tensor out[ANY_OUTS];
    tc_program *f = NULL;
    *n_out = c->build(&g, out);
    tc_status status = tc_compile_fn(TC_TENSORS(g.x, g.h, g.w), TC_TENSORS_N(out, *n_out), NULL,
                                     &f);
    CHECK_MSG(!status, "%s: %s", c->name, tc_ctx_error(ctx));
    REQUIRE(f);
    return f;
}

static void any_run(tc_program *f, const any_case *c, int64_t n, int64_t b, int n_out,
                    any_results *r)
{
    static float x[ANY_MOST], h[ANY_ROWS * ANY_WIDTH], w[ANY_WIDTH * ANY_WIDTH];
    tc_buf outputs[ANY_OUTS];
    for (int i = 0; i < ANY_MOST; i++) {
        x[i] = (float)((i * 7 + 3) % 11) / 8 - 0.5f;
        h[i % (ANY_ROWS * ANY_WIDTH)] = (float)(i % 13) / 16 - 0.4f;
        w[i % (ANY_WIDTH * ANY_WIDTH)] = (float)(i % 9) / 8 - 0.5f;
    }
    memset(r, 0x5a, sizeof(*r));
    tc_bufs inputs = TC_BUFS(TC_BUF_ND(x, n, b, ANY_WIDTH), TC_BUF_ND(h, b, ANY_WIDTH),
                             TC_BUF_ND(w, ANY_WIDTH, ANY_WIDTH));
    for (int i = 0; i < n_out; i++) {
        bool counts = c->build == build_while && i == 1;
        r->counts[i] = tc_output_count(f, inputs, i);
        outputs[i] = (tc_buf){.data = r->values[i],
                              .n = r->counts[i],
                              .dtype = counts ? TC_I32 : TC_F32};
    }
    tc_status status = tc_run(f, inputs, ((tc_bufs){outputs, n_out}));
    CHECK_MSG(!status, "%s of %d, %d: %s", c->name, (int)n, (int)b, tc_error(f));
}

/* Sizes twice, so that an instance is used again; the largest last. */
static const int64_t any_sizes[][2] = {{3, 2}, {0, 4}, {1, 1},
                                       {8, 3}, {3, 2}, {ANY_STEPS, ANY_ROWS}};
enum { ANY_SIZES = sizeof(any_sizes) / sizeof(any_sizes[0]) };
enum { ANY_CASES = sizeof(any_cases) / sizeof(any_cases[0]) };

/* At the first so many sizes. */
static void any_compare(const any_case *c, tc_program *any, const char *backend, int n_sizes)
{
    static any_results of_any, of_these;
    for (int k = 0; k < n_sizes; k++) {
        int64_t n = any_sizes[k][0], b = any_sizes[k][1];
        int n_out;
        if (n == 0 && c->build == build_said) {
            continue; /* a length of 0 is none */
        }
        tc_ctx *ctx = any_ctx(backend, NULL);
        tc_program *these = any_compile(ctx, c, n, b, &n_out);
        any_run(any, c, n, b, n_out, &of_any);
        any_run(these, c, n, b, n_out, &of_these);
        for (int i = 0; i < n_out; i++) {
            CHECK_EQ_INT(of_any.counts[i], of_these.counts[i]);
            CHECK_MSG(same_bits(TC_F32, of_any.values[i], of_these.values[i], of_these.counts[i]),
                      "%s of %d, %d: output %d differs", c->name, (int)n, (int)b, i);
        }
        tc_program_free(these);
        tc_ctx_free(ctx);
    }
}

#endif
