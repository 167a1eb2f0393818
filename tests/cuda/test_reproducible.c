/* tests/cuda/test_reproducible.c - options.reproducible: every bit of a result is the same whether
 * sizes are symbols or numbers, and on interp, cpu and the emulated CUDA dialect. Needs a
 * compiler. */
#define _GNU_SOURCE
#define TC_DYNAMIC_SHAPES
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"
#include "same.h"

#include "emulate.h"

enum { REP_RANK = 4, REP_N = -1 };

static const int64_t rep_sizes[] = {0, 1, 2, 3, 31, 64, 1000, 4097, 100000};

/* A program of inputs x and w, whose axes of size REP_N have the size at hand. */
typedef struct rep_case {
    const char *name;
    tc_tensor (*build)(tc_tensor x, tc_tensor w);
    int64_t x[REP_RANK], w[REP_RANK]; /* 0: no further axes */
    int64_t least, most;              /* sizes */
} rep_case;

static tc_tensor rep_grad(tc_tensor y, tc_tensor of)
{
    tc_tensor weight = tc_sin(y), g = TC_NONE; /* no two elements have one gradient */
    tc_grad(tc_sum(tc_mul(y, weight), TC_ALL, false), &of, 1, &g);
    return g;
}

static tc_tensor rep_sum_all(tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(x, w), TC_ALL, false);
}

static tc_tensor rep_sum_rows(tc_tensor x, tc_tensor w)
{
    return tc_add(tc_sum(x, TC_AXES(1), false), tc_mean(w, TC_ALL, false));
}

static tc_tensor rep_sum_columns(tc_tensor x, tc_tensor w)
{
    return tc_mul(tc_sum(x, TC_AXES(0), false), w);
}

static tc_tensor rep_sum_turned(tc_tensor x, tc_tensor w)
{
    return tc_mul(tc_sum(tc_transpose(x, 0, 1), TC_AXES(0), false), tc_sum(w, TC_ALL, false));
}

static tc_tensor rep_mean_outer(tc_tensor x, tc_tensor w)
{
    return tc_mul(tc_mean(x, TC_AXES(0, 2), false), w);
}

static tc_tensor rep_mean_half(tc_tensor x, tc_tensor w)
{
    tc_tensor y = tc_mean(tc_cast(x, TC_BF16), TC_AXES(0, 1), false);
    return tc_mul(tc_cast(y, TC_F32), w);
}

static tc_tensor rep_broadcast(tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_exp(tc_add(x, w)), TC_AXES(0, 1, 2), false);
}

static tc_tensor rep_both(tc_tensor x, tc_tensor w)
{
    return tc_cat(TC_TENSORS(tc_sum(tc_abs(x), TC_AXES(1), false), tc_sum(x, TC_AXES(0), false),
                             tc_sum(w, TC_AXES(1), false)),
                  0);
}

static tc_tensor rep_softmax(tc_tensor x, tc_tensor w)
{
    return tc_mul(tc_softmax(x, 1), w);
}

static tc_tensor rep_softmax_columns(tc_tensor x, tc_tensor w)
{
    return tc_mul(tc_softmax(x, 0), w);
}

static tc_tensor rep_softmax_grad(tc_tensor x, tc_tensor w)
{
    return rep_grad(tc_log_softmax(tc_mul(x, w), 1), x);
}

static tc_tensor rep_layer_norm(tc_tensor x, tc_tensor w)
{
    return tc_layer_norm(x, TC_AXES(1), w, TC_NONE, 1e-5);
}

static tc_tensor rep_layer_norm_grad(tc_tensor x, tc_tensor w)
{
    return rep_grad(rep_layer_norm(x, w), x);
}

static tc_tensor rep_layer_norm_scale(tc_tensor x, tc_tensor w)
{
    return rep_grad(tc_layer_norm(x, TC_AXES(1), w, TC_NONE, 1e-5), w);
}

static tc_tensor rep_matmul(tc_tensor x, tc_tensor w)
{
    return tc_matmul(x, w);
}

static tc_tensor rep_linear(tc_tensor x, tc_tensor w)
{
    return tc_matmul(x, tc_transpose(w, 0, 1));
}

static tc_tensor rep_matmul_grad(tc_tensor x, tc_tensor w)
{
    return rep_grad(tc_matmul(x, w), w);
}

static tc_tensor rep_conv(tc_tensor x, tc_tensor w)
{
    return tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
}

static tc_tensor rep_conv_grad(tc_tensor x, tc_tensor w)
{
    return rep_grad(rep_conv(x, w), w);
}

static tc_tensor rep_conv_back(tc_tensor x, tc_tensor w)
{
    return rep_grad(rep_conv(x, w), x);
}

static tc_tensor rep_running_rows(tc_tensor x, tc_tensor w)
{
    return tc_mul(tc_cumsum(tc_mul(x, 0.7), 1), tc_sum(w, TC_ALL, false));
}

static tc_tensor rep_running_columns(tc_tensor x, tc_tensor w)
{
    return rep_grad(tc_mul(tc_cumsum(x, 0), tc_sum(w, TC_ALL, false)), x);
}

enum { REP_CASES = 27 };
static const rep_case rep_cases[REP_CASES] = {
    {"sum of all", rep_sum_all, {REP_N}, {REP_N}, 0, 100000},
    {"sum of all, two axes", rep_sum_all, {REP_N, 3}, {REP_N, 1}, 0, 4097},
    {"sum of rows", rep_sum_rows, {3, REP_N}, {REP_N}, 1, 100000},
    {"sum of short rows", rep_sum_rows, {REP_N, 3}, {2, 2}, 0, 4097},
    {"sum of columns", rep_sum_columns, {REP_N, 5}, {5}, 0, 100000},
    {"sum of turned columns", rep_sum_turned, {4, REP_N}, {REP_N, 2}, 0, 4097},
    {"mean of outer axes", rep_mean_outer, {REP_N, 3, 5}, {3}, 1, 4097},
    {"mean in bf16", rep_mean_half, {7, REP_N}, {2}, 1, 100000},
    {"sum of a broadcast", rep_broadcast, {3, REP_N, 5}, {REP_N, 1}, 0, 4097},
    {"running sums of rows", rep_running_rows, {3, REP_N}, {2}, 0, 100000},
    {"running sums of columns, gradient", rep_running_columns, {REP_N, 5}, {2}, 0, 4097},
    {"sums by both axes", rep_both, {4, REP_N}, {4, 3}, 0, 4097},
    {"softmax", rep_softmax, {3, REP_N}, {REP_N}, 1, 100000},
    {"softmax of columns", rep_softmax_columns, {REP_N, 3}, {3}, 1, 4097},
    {"log_softmax, gradient", rep_softmax_grad, {3, REP_N}, {REP_N}, 1, 100000},
    {"layer_norm", rep_layer_norm, {5, REP_N}, {REP_N}, 1, 100000},
    {"layer_norm, gradient", rep_layer_norm_grad, {5, REP_N}, {REP_N}, 1, 4097},
    {"layer_norm, gradient of the scale", rep_layer_norm_scale, {REP_N, 6}, {6}, 1, 4097},
    {"matmul", rep_matmul, {5, REP_N}, {REP_N, 20}, 0, 100000},
    {"matmul of open rows", rep_matmul, {REP_N, 65}, {65, 33}, 0, 4097},
    {"dot product", rep_matmul, {REP_N}, {REP_N}, 0, 100000},
    {"linear", rep_linear, {2, REP_N}, {9, REP_N}, 0, 100000},
    {"matmul, gradient", rep_matmul_grad, {REP_N, 12}, {12, 17}, 0, 4097},
    {"conv2d", rep_conv, {1, 2, 3, REP_N}, {4, 2, 3, 3}, 1, 4097},
    {"conv2d of open channels", rep_conv, {1, REP_N, 3, 6}, {16, REP_N, 3, 3}, 1, 4097},
    {"conv2d, gradient of weights", rep_conv_grad, {1, 2, 3, REP_N}, {4, 2, 3, 3}, 1, 4097},
    {"conv2d, gradient", rep_conv_back, {1, 2, 3, REP_N}, {4, 2, 3, 3}, 1, 4097},
};

/* ---- running ---- */

static int rep_rank(const int64_t *shape)
{
    int rank = 0;
    while (rank < REP_RANK && shape[rank]) {
        rank++;
    }
    return rank;
}

static tc_tensor rep_input(tc_ctx *ctx, const char *name, const int64_t *shape, int64_t n)
{
    int64_t list[REP_RANK + 1] = {TC_F32};
    int rank = rep_rank(shape);
    for (int i = 0; i < rank; i++) {
        list[i + 1] = shape[i] == REP_N ? n : shape[i];
    }
    return tc_input_at(ctx, name, rank + 1, list, TC_HERE);
}

/* The cases of one range of sizes as one program; elements of each result in counts[]. */
typedef struct rep_set {
    const rep_case *cases[REP_CASES];
    int n;
    int64_t least, most;
} rep_set;

static tc_program *rep_compile(tc_ctx *ctx, const rep_set *set, int64_t n, int64_t *counts)
{
    tc_program *f = NULL;
    tc_tensor in[2 * REP_CASES], out[REP_CASES];
    for (int i = 0; i < set->n; i++) {
        in[2 * i] = rep_input(ctx, "x", set->cases[i]->x, n);
        in[2 * i + 1] = rep_input(ctx, "w", set->cases[i]->w, n);
        out[i] = set->cases[i]->build(in[2 * i], in[2 * i + 1]);
        counts[i] = tc_count(out[i]);
    }
    tc_tensors all_in = {in, 2 * set->n}, all_out = {out, set->n};
    tc_status status = tc_compile_fn(all_in, all_out, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    return f;
}

static tc_ctx *rep_ctx(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend,
                    .threads = 2,
                    .verify = true,
                    .no_disk_cache = true,
                    .reproducible = true};
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* Numbers whose sums round at every step. */
static float *rep_numbers(const int64_t *shape, int64_t n, tc_buf *buf, int64_t *sizes,
                          unsigned seed)
{
    int64_t count = 1;
    int rank = rep_rank(shape);
    for (int i = 0; i < rank; i++) {
        sizes[i] = shape[i] == REP_N ? n : shape[i];
        count *= sizes[i];
    }
    float *p = malloc(sizeof(float) * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)((double)(seed >> 8) / 8388608.0 - 0.9);
    }
    *buf = TC_BUF(p, count);
    buf->rank = rank;
    buf->sizes = sizes;
    return p;
}

/* The results of f at size n, malloced, in out[]. */
static void rep_run(const rep_set *set, tc_program *f, int64_t n, const int64_t *counts,
                    float **out)
{
    tc_buf in[2 * REP_CASES], results[REP_CASES];
    float *p[2 * REP_CASES];
    int64_t sizes[2 * REP_CASES][REP_RANK];
    for (int i = 0; i < 2 * set->n; i++) {
        const rep_case *c = set->cases[i / 2];
        p[i] = rep_numbers(i % 2 ? c->w : c->x, n, &in[i], sizes[i], (unsigned)i);
    }
    for (int i = 0; i < set->n; i++) {
        out[i] = calloc((size_t)counts[i] + 1, sizeof(float));
        results[i] = TC_BUF(out[i], counts[i]);
    }
    tc_bufs all_in = {in, 2 * set->n}, all_out = {results, set->n};
    tc_status status = tc_run(f, all_in, all_out);
    CHECK_MSG(status == TC_OK, "at %lld: %s", (long long)n, tc_error(f));
    for (int i = 0; i < 2 * set->n; i++) {
        free(p[i]);
    }
}

static void rep_same(const rep_case *c, int64_t n, const char *who, const float *want,
                     const float *got, int64_t count)
{
    int64_t at = 0;
    while (at < count && same_bits(TC_F32, want + at, got + at, 1)) {
        at++;
    }
    CHECK_MSG(at == count, "%s at %lld, %s: element %lld of %lld is %.9g, expected %.9g", c->name,
              (long long)n, who, (long long)at, (long long)count, (double)got[at],
              (double)want[at]);
}

static tc_ctx *rep_all[3];
static const char *const rep_names[3] = {"interp", "cpu", "emulated"};

/* Holds f, made for one size or any, against what the interpreter got from a program of size n. */
static void rep_hold(const rep_set *set, tc_program *f, int64_t n, const char *who,
                     const int64_t *counts, float *const *want)
{
    float *got[REP_CASES];
    rep_run(set, f, n, counts, got);
    for (int i = 0; i < set->n; i++) {
        rep_same(set->cases[i], n, who, want[i], got[i], counts[i]);
        free(got[i]);
    }
}

static void rep_check(const rep_set *set, tc_program *const *open, int64_t n)
{
    int64_t counts[REP_CASES];
    float *want[REP_CASES];
    tc_program *fixed = rep_compile(rep_all[0], set, n, counts);
    REQUIRE(fixed);
    rep_run(set, fixed, n, counts, want);
    tc_program_free(fixed);
    for (int i = 0; i < 3; i++) {
        rep_hold(set, open[i], n, rep_names[i], counts, want);
        if (i > 0 && (n == 1 || n == 1000)) {
            tc_program *f = rep_compile(rep_all[i], set, n, counts);
            REQUIRE(f);
            rep_hold(set, f, n, i == 1 ? "cpu, fixed" : "emulated, fixed", counts, want);
            tc_program_free(f);
        }
    }
    for (int i = 0; i < set->n; i++) {
        free(want[i]);
    }
}

static void rep_check_set(const rep_set *set)
{
    tc_program *open[3];
    int64_t counts[REP_CASES];
    for (int i = 0; i < 3; i++) {
        open[i] = rep_compile(rep_all[i], set, TC_DIM("n", set->least, 200000), counts);
        REQUIRE(open[i]);
    }
    for (int i = 0; i < TCI_COUNT(rep_sizes); i++) {
        if (rep_sizes[i] >= set->least && rep_sizes[i] <= set->most) {
            rep_check(set, open, rep_sizes[i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        tc_program_free(open[i]);
    }
}

TEST(the_same_bits_for_any_size_everywhere)
{
    static const int64_t ranges[][2] = {{0, 4097}, {0, 100000}, {1, 4097}, {1, 100000}};
    tc_register_backend(emulation());
    for (int i = 0; i < 3; i++) {
        rep_all[i] = rep_ctx(rep_names[i]);
        REQUIRE(rep_all[i]);
    }
    for (int r = 0; r < TCI_COUNT(ranges); r++) {
        rep_set set = {{NULL}, 0, ranges[r][0], ranges[r][1]};
        for (int k = 0; k < REP_CASES; k++) {
            const rep_case *c = &rep_cases[k];
            if (c->least == set.least && c->most == set.most) {
                set.cases[set.n++] = c;
            }
        }
        rep_check_set(&set);
    }
    for (int i = 0; i < 3; i++) {
        tc_ctx_free(rep_all[i]);
    }
}

/* Whether the explanation of y, reproducible or not, holds `text`. */
static bool rep_explains(bool reproducible, int which, const char *text)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = which ? "emulated" : "interp", .reproducible = reproducible};
    o.no_disk_cache = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 8, 100000);
    tc_program *f = NULL;
    tc_tensor y = which ? tc_softmax(tc_slice(x, 1, 0, 5000, 1), 1) : tc_sum(x, TC_ALL, false);
    CHECK(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), NULL, &f) == TC_OK);
    char said[8192] = "";
    FILE *file = fmemopen(said, sizeof(said), "w");
    REQUIRE(file && tc_explain_as(f, file, &(tc_explain_options){.all = true}) == TC_OK);
    fclose(file);
    bool there = strstr(said, text) != NULL;
    CHECK_MSG(!reproducible || there, "no \"%s\" in\n%s", text, said);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return there;
}

TEST(what_it_costs_is_explained)
{
    tc_register_backend(emulation());
    CHECK(rep_explains(true, 0, "sum: whole, to be reproducible, else "));
    CHECK(!rep_explains(false, 0, "to be reproducible"));
    CHECK(rep_explains(true, 1, "LANES(64), to be reproducible, else LANES("));
    CHECK(!rep_explains(false, 1, "to be reproducible"));
}

TEST_MAIN
