/* The CUDA dialect without a GPU: its text is run on the CPU (emulate.h), against the reference
 * cases and the interpreter, and compiled by NVRTC where that library is found. With a GPU the
 * reference cases run on it too. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"
#include "same.h"

#include "../oracle_run.h"
#include "../assertions.h"
#include "../updates.h"
#include "planned.h"

/* ---- the same bits as the interpreter ---- */

enum { M = 37, N = 301 };

typedef tc_tensor (*expression)(tc_tensor x);

static tc_tensor chain(tc_tensor x)
{
    return tc_sin(tc_cos(tc_exp(tc_neg(tc_abs(x)))));
}
static tc_tensor wide_range(tc_tensor x)
{
    return tc_sin(tc_mul(x, 1e30));
}
static tc_tensor logs(tc_tensor x)
{
    return tc_log(tc_add(tc_square(x), 0.5));
}
static tc_tensor curves(tc_tensor x)
{
    return tc_add(tc_tanh(x), tc_mul(tc_gelu(x), tc_sigmoid(x)));
}
/* Of floats of all sizes, subnormal ones among them; all but the input's first, a whole number. */
static tc_tensor curves_everywhere(tc_tensor x)
{
    tc_tensor first = tc_cast(tc_select(tc_reshape(x, M * N), 0, 0), TC_I32);
    tc_tensor bits = tc_mul(tc_arange(x.ctx, 0, 1 << 20, 1, TC_I32), 4099);
    return curves(tc_bitcast(tc_add(bits, first), TC_F32));
}
static tc_tensor power(tc_tensor x)
{
    return tc_pow(tc_abs(x), 1.7);
}
static tc_tensor transposed(tc_tensor x)
{
    return tc_add(tc_permute(x, 1, 0), 1.0);
}
static tc_tensor flipped(tc_tensor x)
{
    return tc_flip(tc_slice(x, 1, 3, TC_END, 2), 1);
}
static tc_tensor padded(tc_tensor x)
{
    return tc_relu(tc_pad(x, 1, 5, 7, 0.25));
}
static tc_tensor halves(tc_tensor x)
{
    return tc_cast(tc_mul(tc_cast(x, TC_BF16), 3.0), TC_F32);
}
static tc_tensor integers(tc_tensor x)
{
    tc_tensor i = tc_cast(tc_mul(x, 1000.0), TC_I64);
    return tc_cast(tc_add(tc_div(i, 7), tc_remainder(i, 5)), TC_F32);
}
/* Just next to ties of bf16 and f16, where a rounding to f32 in between would show. */
static tc_tensor near_ties(tc_tensor x)
{
    tc_tensor i = tc_remainder(tc_cast(tc_mul(x, 97), TC_I64), 256);
    tc_tensor side = tc_where(tc_gt(x, 0), 1, -1);
    tc_tensor d = tc_add(tc_cast(i, TC_F64), tc_mul(tc_cast(side, TC_F64), 0x1p-40));
    tc_tensor large = tc_add(tc_mul(tc_add(i, 256), 1 << 30), side);
    tc_tensor y = tc_cast(tc_cast(tc_add(d, 256), TC_BF16), TC_F32);
    y = tc_add(y, tc_mul(tc_cast(tc_cast(tc_add(d, 2048), TC_F16), TC_F32), 1e4));
    return tc_add(y, tc_cast(tc_cast(large, TC_BF16), TC_F32));
}
static tc_tensor doubles(tc_tensor x)
{
    return tc_cast(tc_exp(tc_cast(x, TC_F64)), TC_F32);
}
static tc_tensor scanned(tc_tensor x)
{
    return tc_cumsum(x, 0);
}
static tc_tensor columns(tc_tensor x)
{
    return tc_sum(x, TC_AXES(0), false);
}
/* Few products: more would be summed in parts, which the interpreter does not make. */
static tc_tensor product(tc_tensor x)
{
    tc_tensor few = tc_slice(x, 1, 0, 60, 1);
    return tc_matmul(few, tc_permute(few, 1, 0));
}
static tc_tensor reshaped(tc_tensor x)
{
    return tc_reshape(tc_permute(x, 1, 0), M, N);
}
static tc_tensor largest(tc_tensor x)
{
    return tc_cast(tc_argmax(x, 1, false), TC_F32);
}
/* Several rows a warp. */
static tc_tensor short_rows(tc_tensor x)
{
    tc_tensor r = tc_reshape(x, N, M);
    tc_tensor best = tc_add(tc_max(r, TC_AXES(1), false), tc_min(r, TC_AXES(1), false));
    return tc_add(best, tc_cast(tc_add(tc_argmax(r, 1, false), tc_argmin(r, 1, false)), TC_F32));
}

static tc_tensor dropped(tc_tensor x)
{
    return tc_dropout(tc_permute(x, 1, 0), 0.3, UINT64_C(0x123456789abcdef0));
}
static tc_tensor normal(tc_tensor x)
{
    return tc_add(tc_randn(x.ctx, 99, TC_F32, M, N), x);
}
static tc_tensor dice(tc_tensor x)
{
    tc_tensor i = tc_randint(x.ctx, tc_fold_in(tc_full(x.ctx, 5, TC_U64), 7), -9, 9, TC_I64, M, N);
    return tc_where(tc_bernoulli(tc_rand(x.ctx, 4, TC_F64, M, N), 3), tc_cast(i, TC_F32), x);
}
static tc_tensor bits(tc_tensor x)
{
    tc_tensor i = tc_cast(tc_mul(x, 1e6), TC_I32), u = tc_cast(i, TC_U64);
    tc_tensor h = tc_mul_high(tc_bitwise_xor(i, 0x5a5a5a), tc_bitwise_left_shift(i, 7));
    tc_tensor by = tc_cast(tc_bitwise_and(i, 63), TC_U64);
    u = tc_mul_high(tc_bitwise_not(u), tc_bitwise_right_shift(u, by));
    return tc_add(tc_cast(h, TC_F32), tc_cast(tc_bitwise_or(u, 1), TC_F32));
}

static tc_tensor halves_by_bits(tc_tensor x)
{
    tc_tensor h = tc_bitcast(tc_cast(x, TC_F16), TC_U16);
    tc_tensor b = tc_bitcast(tc_cast(x, TC_BF16), TC_I16);
    h = tc_cast(tc_bitcast(tc_bitwise_xor(h, 0x13), TC_F16), TC_F32);
    b = tc_cast(tc_bitcast(tc_bitwise_xor(b, 0x13), TC_BF16), TC_F32);
    return tc_add(tc_add(h, b), tc_bitcast(tc_bitwise_and(tc_bitcast(x, TC_I32), -256), TC_F32));
}

/* Of chunks of chunks by ranks; by digits. */
static tc_tensor first_few(tc_tensor x)
{
    tc_tensor values, indices;
    tc_topk(tc_permute(x, 1, 0), 0, 9, true, &values, &indices);
    return tc_add(values, tc_cast(indices, TC_F32));
}
static tc_tensor first_many(tc_tensor x)
{
    tc_tensor values, indices;
    tc_tensor line = tc_slice(tc_reshape(x, -1), 0, 0, 1030, 1);
    tc_topk(tc_cast(line, TC_BF16), 0, 260, false, &values, &indices);
    return tc_add(values, tc_cast(indices, TC_F32));
}

/* A tuple of three joined down columns. */
static tc_tensor spread_columns(tc_tensor x)
{
    tc_tensor var, mean;
    tc_var_mean(x, TC_AXES(0), 1, false, &var, &mean);
    return tc_add(var, mean);
}

/* Long enough that the index is ordered: its numbers again and again, or one of them by most. */
static tc_tensor whole(tc_tensor x, int64_t most)
{
    tc_tensor finite = tc_where(tc_lt(tc_abs(x), 100), x, 0);
    return tc_remainder(tc_cast(tc_round(tc_mul(finite, 157)), TC_I32), most);
}
static tc_tensor ordered_line(tc_tensor x)
{
    tc_tensor flat = tc_reshape(x, -1);
    return tc_scatter_add(tc_slice(flat, 0, 0, 700, 1), 0, tc_sub(whole(flat, 700), 350), flat);
}
static tc_tensor ordered_rows(tc_tensor x)
{
    tc_tensor flat = tc_reshape(x, -1);
    tc_tensor rows = tc_cat(TC_TENSORS(flat, tc_mul(flat, 3), flat, tc_neg(flat), flat, flat), 0);
    rows = tc_reshape(rows, 4773, 14);
    tc_tensor first = tc_reshape(tc_slice(rows, 1, 0, 1, 1), -1);
    tc_tensor table = tc_slice(rows, 0, 100, 400, 1), index = whole(first, 300);
    tc_tensor most = tc_where(tc_lt(whole(first, 10), 9), 7, index);
    return tc_cat(TC_TENSORS(tc_index_add(table, 0, index, rows),
                             tc_index_add(table, 0, most, tc_sin(rows))),
                  0);
}
static tc_tensor ordered_columns(tc_tensor x)
{
    tc_tensor rows = tc_reshape(tc_slice(tc_reshape(x, -1), 0, 0, 2 * 5000, 1), 2, 5000);
    tc_tensor index = whole(tc_slice(rows, 0, 1, 2, 1), 257);
    tc_tensor table = tc_slice(rows, 1, 7, 264, 1), spread = tc_expand(index, 2, 5000);
    return tc_cat(
        TC_TENSORS(tc_scatter(table, 1, spread, rows), tc_scatter_max(table, 1, spread, rows)), 0);
}

/* Rows so long that their parts are linked (plan/split_scan.c): of finite numbers. */
static tc_tensor long_row(tc_tensor x)
{
    tc_tensor finite = tc_reshape(tc_where(tc_lt(tc_abs(x), 100), x, 0), 1, -1);
    return tc_cat(TC_TENSORS(finite, tc_sin(finite), tc_neg(finite), finite, finite), 1);
}
static tc_tensor linked_row(tc_tensor x)
{
    return tc_cumsum(tc_exp(long_row(x)), 1);
}
static tc_tensor linked_back(tc_tensor x)
{
    tc_tensor y = tc_flip(tc_cumsum(tc_flip(long_row(x), 1), 1), 1);
    return tc_sub(y, tc_cumsum(tc_cos(long_row(x)), 1));
}
static tc_tensor linked_rows(tc_tensor x)
{
    tc_tensor y = long_row(x);
    return tc_cumsum(tc_cat(TC_TENSORS(y, tc_mul(y, 3), tc_cos(y)), 0), 1);
}
static tc_tensor linked_with_a_rest(tc_tensor x)
{
    tc_tensor y = tc_cat(TC_TENSORS(long_row(x), long_row(x)), 0);
    return tc_cumsum(tc_pad(tc_slice(y, 1, 11, 40000, 1), 1, 3, 17, 1), 1);
}
static tc_tensor linked_extremes(tc_tensor x)
{
    tc_tensor most, y = tc_mul(long_row(x), tc_cos(long_row(x)));
    tc_cummax(y, 1, &most, NULL);
    return tc_cat(TC_TENSORS(most, tc_cast(tc_cumprod(whole(long_row(x), 9), 1), TC_F32)), 0);
}
static tc_tensor linked_wide(tc_tensor x)
{
    tc_tensor d = tc_cumsum(tc_cast(long_row(x), TC_F64), 1);
    tc_tensor i = tc_cumsum(tc_mul(tc_cast(whole(long_row(x), 999), TC_I64), 1LL << 40), 1);
    return tc_cat(TC_TENSORS(tc_cast(d, TC_F32), tc_cast(i, TC_F32)), 0);
}
/* Of more loads than registers hold. */
static tc_tensor linked_many(tc_tensor x)
{
    tc_tensor y = long_row(x), all = y;
    for (int i = 1; i < 9; i++) {
        all = tc_add(tc_sin(all), tc_flip(tc_cos(tc_add(y, i)), 1));
    }
    return tc_cumsum(all, 1);
}

static const expression linked[] = {linked_row,      linked_back, linked_rows, linked_with_a_rest,
                                    linked_extremes, linked_wide, linked_many};
static const expression ordered[] = {ordered_line, ordered_rows, ordered_columns};
static const expression exact[] = {
    chain,      wide_range,       logs,      curves,     power,
    transposed, flipped,          padded,    halves,     integers,
    doubles,    scanned,          columns,   product,    reshaped,
    largest,    near_ties,        dropped,   normal,     dice,
    bits,       halves_by_bits,   first_few, first_many, spread_columns,
    short_rows, curves_everywhere};

/* All values of y at this input; the caller frees. */
static float *values_of(const char *backend, expression e, const float *x, int64_t *n)
{
    tc_ctx *ctx = context_of(backend);
    if (!ctx) {
        return NULL;
    }
    tc_tensor y = e(tc_input(ctx, "x", TC_F32, M, N));
    tc_program *f = NULL;
    *n = tc_nbytes(y) / 4;
    float *out = (float *)calloc((size_t)*n, sizeof(float));
    tc_status status = tc_compile(y, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(y));
    if (!status) {
        status = tc_run(f, TC_BUFS(TC_BUF(x, M * N)), TC_BUFS(TC_BUF(out, *n)));
        CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(f));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return out;
}

static void fill(float *x)
{
    for (int i = 0; i < M * N; i++) {
        x[i] = (float)((i * 7919) % 2003 - 1001) / 157.0f;
    }
    x[5] = NAN;
    x[700] = INFINITY;
    x[701] = -INFINITY;
    x[702] = -0.0f;
    x[703] = 1e-42f;
}

static void compare_with(const char *other, const char *backend, const expression *list, int n_list)
{
    static float x[M * N];
    register_emulation();
    tc_ctx *probe = context_of("emulated");
    if (!probe) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(probe);
    fill(x);
    for (int i = 0; i < n_list; i++) {
        int64_t n = 0;
        float *want = values_of(other, list[i], x, &n);
        float *got = values_of(backend, list[i], x, &n);
        int wrong = 0;
        for (int64_t j = 0; want && got && j < n; j++) {
            wrong += !same_bits(TC_F32, &want[j], &got[j], 1);
        }
        CHECK_MSG(want && got && wrong == 0, "%s, expression %d: %d of %d values differ", backend,
                  i, wrong, (int)n);
        free(want);
        free(got);
    }
}

static void compare_expressions(const char *backend, const expression *list, int n_list)
{
    compare_with("interp", backend, list, n_list);
}

TEST(results_have_the_bits_of_the_interpreter)
{
    compare_expressions("emulated", exact, sizeof(exact) / sizeof(exact[0]));
}

/* Element by element of an axis, by an order of the index (plan/scatter_sort.c), where the
 * interpreter goes along the index. */
TEST(ordered_indices_have_the_bits_of_the_interpreter)
{
    compare_expressions("emulated", ordered, sizeof(ordered) / sizeof(ordered[0]));
    compare_expressions("planned", ordered, sizeof(ordered) / sizeof(ordered[0]));
}

TEST(linked_parts_have_the_bits_of_their_plan)
{
    compare_with("planned", "emulated", linked, sizeof(linked) / sizeof(linked[0]));
    tc_ctx *ctx = context_of("planned");
    for (size_t i = 0; ctx && i < sizeof(linked) / sizeof(linked[0]); i++) {
        tc_tensor y = linked[i](tc_input(ctx, "x", TC_F32, M, N));
        tc_program *f = NULL;
        CHECK(!tc_compile(y, &f) && explains(f, "EARLIER(1)"));
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
}

/* The words that blocks tell each other are as the run before left them, in each call. */
TEST(linked_parts_begin_anew_in_each_run)
{
    enum { ROWS = 3, LONG = 20011, RUNS = 6 };
    static float x[2][ROWS * LONG], y[ROWS * LONG];
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_program *f = NULL;
    tc_program_info info;
    tc_call *calls[2];
    REQUIRE(!tc_compile(tc_cumsum(tc_input(ctx, "x", TC_F32, ROWS, LONG), 1), &f));
    REQUIRE(!tc_program_get_info(f, &info) && explains(f, "10 linked parts of 2048"));
    for (int c = 0; c < 2; c++) {
        REQUIRE(!tc_call_make(f, &calls[c]));
    }
    for (int run = 0; run < RUNS; run++) {
        int wrong = 0, c = run % 2;
        for (int i = 0; i < ROWS * LONG; i++) {
            x[c][i] = (float)((int)(tct_random() % 9) - 4);
        }
        REQUIRE(!tc_run_call(calls[c], TC_BUFS(TC_BUF(x[c], ROWS * LONG)),
                             TC_BUFS(TC_BUF(y, ROWS * LONG))));
        for (int r = 0; r < ROWS; r++) {
            float sum = 0;
            for (int i = r * LONG; i < (r + 1) * LONG; i++) {
                sum += x[c][i];
                wrong += y[i] != sum;
            }
        }
        CHECK_MSG(wrong == 0, "run %d: %d of %d differ", run, wrong, ROWS * LONG);
    }
    for (int c = 0; c < 2; c++) {
        tc_call_free(calls[c]);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- rows: many lanes meet ---- */

TEST(row_reductions_of_every_length)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    enum { ROWS = 3, LENGTHS = 9 };
    static const int lengths[LENGTHS] = {1, 2, 31, 64, 65, 513, 1000, 4096, 5001};
    tc_program *programs[LENGTHS];
    tc_tensor x[LENGTHS], y[LENGTHS];
    tc_job jobs[LENGTHS];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < LENGTHS; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, ROWS, lengths[i]);
        y[i] = tc_softmax(x[i], -1);
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &programs[i];
    }
    tc_status status = tc_compile_many(jobs, LENGTHS, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    for (int i = 0; i < LENGTHS && programs[i]; i++) {
        int n = ROWS * lengths[i];
        float *in = (float *)malloc((size_t)n * 4), *out = (float *)malloc((size_t)n * 4);
        for (int j = 0; j < n; j++) {
            in[j] = (float)(j % 23) * 0.25f;
        }
        CHECK_EQ_INT(tc_run(programs[i], TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n))), TC_OK);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, worst = 0;
            for (int j = 0; j < lengths[i]; j++) {
                sum += exp((double)in[r * lengths[i] + j]);
            }
            for (int j = 0; j < lengths[i]; j++) {
                double want = exp((double)in[r * lengths[i] + j]) / sum;
                worst = fmax(worst, fabs(out[r * lengths[i] + j] - want) / want);
            }
            CHECK_MSG(worst < 1e-5, "rows of %d: off by %g", lengths[i], worst);
        }
        free(in);
        free(out);
        tc_program_free(programs[i]);
    }
    tc_ctx_free(ctx);
}

/* ---- indices in order (plan/scatter_sort.c), by ranks or by digits ---- */

typedef enum order_kind {
    ORDER_SPREAD, /* every other one from the end */
    ORDER_FEW,
    ORDER_EQUAL,
    ORDER_OUTSIDE, /* one of them */
    ORDER_KINDS
} order_kind;

typedef struct order_case {
    const char *launches; /* two, and three of ranks or five of each digit */
    int64_t keys, n;
    int kinds; /* the first ones: all, or one where the emulation takes seconds */
} order_case;

/* On both sides of where ranks end, for indices of one digit, of two, and of three in words of i64;
 * and of where words are i32 (262142 indices of 18 bits over places of 13). */
static const order_case order_cases[] = {
    {"5 launches of 5 kernels", 1, 512, ORDER_KINDS},
    {"5 launches of 5 kernels", 200, 5632, ORDER_KINDS},
    {"7 launches of 7 kernels", 200, 5633, 1},
    {"5 launches of 5 kernels", 32000, 10752, ORDER_KINDS},
    {"12 launches of 8 kernels", 32000, 10753, 1},
    {"5 launches of 5 kernels", 262142, 5000, ORDER_KINDS},
    {"5 launches of 5 kernels", 262143, 5000, ORDER_KINDS},
    {"5 launches of 5 kernels", 300000, 9984, ORDER_KINDS},
    {"17 launches of 9 kernels", 300000, 9985, 1},
};

enum { ORDER_KEYS = 300000, ORDER_N = 12000 };
static float order_x[ORDER_KEYS], order_src[ORDER_N], order_out[ORDER_KEYS], order_want[ORDER_KEYS];
static int64_t order_index[ORDER_N];

/* Numbers whose sums tell orders apart, and indices of this kind. */
static void order_fill(const order_case *c, order_kind kind)
{
    uint64_t state = 7;
    for (int64_t i = 0; i < c->keys; i++) {
        order_want[i] = order_x[i] = (float)(i * 7919 % 2003 - 1001) / 157.0f;
    }
    for (int64_t i = 0; i < c->n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int64_t any = (int64_t)(state >> 33) % c->keys;
        order_src[i] = (float)(state >> 40) / 3e5f - 20;
        int64_t from_end = any % 2 ? any - c->keys : any;
        order_index[i] = kind == ORDER_FEW     ? any % 3 * (c->keys / 3)
                         : kind == ORDER_EQUAL ? c->keys - 1
                                               : from_end;
    }
    if (kind == ORDER_OUTSIDE) {
        order_index[c->n - 2] = c->keys;
    }
}

static tc_program *order_program(tc_ctx *ctx, const order_case *c)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, c->keys), src = tc_input(ctx, "src", TC_F32, c->n);
    tc_tensor index = tc_input(ctx, "index", TC_I64, c->n);
    tc_tensor y = tc_index_add(x, 0, index, src);
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, index, src), TC_TENSORS(y), NULL, &f) == TC_OK, "%s",
              tc_error(ctx));
    return f;
}

static tc_status order_run(tc_program *f, const order_case *c)
{
    return tc_run(
        f, TC_BUFS(TC_BUF(order_x, c->keys), TC_BUF(order_index, c->n), TC_BUF(order_src, c->n)),
        TC_BUFS(TC_BUF(order_out, c->keys)));
}

/* The elements of src one after the other, as SCATTER has it. */
static int64_t order_wrong(const order_case *c)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < c->n; i++) {
        order_want[order_index[i] + (order_index[i] < 0 ? c->keys : 0)] += order_src[i];
    }
    for (int64_t i = 0; i < c->keys; i++) {
        wrong += !same_bits(TC_F32, &order_want[i], &order_out[i], 1);
    }
    return wrong;
}

static void order_check(tc_program *f, const order_case *c)
{
    for (int kind = 0; kind < c->kinds; kind++) {
        order_fill(c, (order_kind)kind);
        tc_status status = order_run(f, c);
        if (kind == ORDER_OUTSIDE) {
            CHECK_EQ_INT(status, TC_ERR_INDEX);
            CHECK_HAS(tc_error(f), "is outside axis 0 of size ");
            continue;
        }
        CHECK_MSG(status == TC_OK, "%s", tc_error(f));
        int64_t wrong = order_wrong(c);
        CHECK_MSG(wrong == 0, "%lld of %lld, kind %d: %lld differ", (long long)c->n,
                  (long long)c->keys, kind, (long long)wrong);
    }
}

TEST(indices_are_ordered_by_ranks_or_by_digits)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (size_t i = 0; i < sizeof(order_cases) / sizeof(order_cases[0]); i++) {
        const order_case *c = &order_cases[i];
        tc_program *f = order_program(ctx, c);
        CHECK_MSG(f && explains(f, c->launches), "%lld of %lld are not %s", (long long)c->n,
                  (long long)c->keys, c->launches);
        if (f) {
            order_check(f, c);
        }
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
}

/* What recipes divide is normal, so no branch keeps elements apart; what users divide is not. */
TEST(recipes_divide_without_a_branch)
{
    static const expression lists[] = {curves_everywhere};
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, N);
    tc_program *f[2] = {NULL, NULL};
    CHECK(tc_compile(tc_sigmoid(x), &f[0]) == TC_OK && strstr(tc_source(f[0]), " tc_quotient("));
    CHECK(tc_compile(tc_div(x, tc_exp(x)), &f[1]) == TC_OK);
    CHECK(!strstr(tc_source(f[1]), "tc_quotient"));
    tc_program_free(f[0]);
    tc_program_free(f[1]);
    tc_ctx_free(ctx);
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tci_cuda_backend()->target(NULL, 0, &target);
    if (target.usable) {
        compare_expressions("cuda", lists, 1);
    }
}

/* Does a store of the source take what a rounding to f16 or bf16 made? */
static bool stores_rounded(const char *source)
{
    bool found = false;
    for (const char *at = strstr(source, " tc_store"); at; at = strstr(at + 1, " tc_store")) {
        const char *end = strstr(at, ");\n"), *value = end;
        while (value && value > at && *value != ' ') {
            value--;
        }
        char rounding[64];
        int n = value ? (int)(end - value) : 0;
        snprintf(rounding, sizeof(rounding), "%.*s = tc_round", n, n ? value : "");
        found |= n > 0 && strstr(source, rounding);
    }
    return found;
}

/* What fill(x) has, every exponent, and ties of both dtypes with their neighbours. */
static void fill_ties(float *x)
{
    fill(x);
    for (uint32_t i = 1000; i < M * N; i++) {
        uint32_t tie = i % 2 ? 0x8000 : 0x1000, bits = i * 0x9e3779b1u & ~(2 * tie - 1);
        bits |= tie + i / 2 % 3 - 1;
        memcpy(&x[i], &bits, sizeof(bits));
    }
}

/* A store rounds, so that what it takes need not be rounded before. */
TEST(halves_are_rounded_once_where_they_are_stored)
{
    static const tc_dtype halves_of[] = {TC_BF16, TC_F16};
    static const char *const backends[] = {"interp", "emulated"};
    static float x[M * N];
    static uint16_t out[2][M * N];
    register_emulation();
    fill_ties(x);
    for (int i = 0; i < 2; i++) {
        for (int b = 0; b < 2; b++) {
            tc_ctx *ctx = context_of(backends[b]);
            if (!ctx) {
                SKIP("there is no C++ compiler");
            }
            tc_program *f;
            REQUIRE(!tc_compile(tc_cast(tc_input(ctx, "x", TC_F32, M, N), halves_of[i]), &f));
            CHECK(!b || (strstr(tc_source(f), " tc_store") && !stores_rounded(tc_source(f))));
            tc_bufs to = TC_BUFS(TC_BUF((void *)out[b], sizeof(out[b])));
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, M * N)), to), TC_OK);
            tc_program_free(f);
            tc_ctx_free(ctx);
        }
        CHECK_EQ_INT(same_until(halves_of[i], out[0], out[1], M * N), -1);
    }
}

/* ---- what stays on the device ---- */

#define NO_BUFS ((tc_bufs){NULL, 0})

/* Uploads and downloads since the last call of this. */
static void moved(int64_t *up, int64_t *down)
{
    static int64_t up_before, down_before;
    *up = emu_uploads - up_before;
    *down = emu_downloads - down_before;
    up_before = emu_uploads;
    down_before = emu_downloads;
}

#define CHECK_MOVED(expected_up, expected_down)                                                    \
    do {                                                                                           \
        int64_t up_, down_;                                                                        \
        moved(&up_, &down_);                                                                       \
        CHECK_MSG(up_ == (expected_up) && down_ == (expected_down),                                \
                  "%lld uploads and %lld downloads, expected %d and %d", (long long)up_,           \
                  (long long)down_, (int)(expected_up), (int)(expected_down));                     \
    } while (0)

TEST(captured_memory_goes_up_once_and_again_when_touched)
{
    static float weights[1000], x[1000], out[1000];
    tc_program *f = NULL, *g = NULL;
    int64_t up, down, before = emu_allocations;
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < 1000; i++) {
        weights[i] = (float)i;
        x[i] = 2;
    }
    tc_tensor w = tc_borrow(ctx, weights, TC_F32, 1000);
    tc_tensor in = tc_input(ctx, "x", TC_F32, 1000);
    REQUIRE(tc_compile(tc_mul(in, w), &f) == TC_OK && tc_compile(tc_add(in, w), &g) == TC_OK);
    moved(&up, &down);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 1000)), TC_BUFS(TC_BUF(out, 1000))), TC_OK);
    CHECK_MOVED(2, 1);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 1000)), TC_BUFS(TC_BUF(out, 1000))), TC_OK);
    CHECK_MOVED(1, 1);
    CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(x, 1000)), TC_BUFS(TC_BUF(out, 1000))), TC_OK);
    CHECK_MOVED(1, 1); /* another program, the same memory */
    CHECK(out[7] == 9);
    weights[7] = 70;
    CHECK_EQ_INT(tc_touch(w), TC_OK);
    CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(x, 1000)), TC_BUFS(TC_BUF(out, 1000))), TC_OK);
    CHECK_MOVED(2, 1);
    CHECK(out[7] == 72);
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(emu_allocations, before);
}

/* w = w + x and, staged, v = w's old value + v. */
TEST(parameters_stay_where_they_were_changed)
{
    static float zero[512], x[512], got[512];
    tc_program *f = NULL, *host = NULL;
    tc_options interp;
    int64_t up, down, before = emu_allocations;
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    memset(&interp, 0, sizeof(interp));
    interp.backend = "interp";
    for (int i = 0; i < 512; i++) {
        x[i] = (float)i;
    }
    tc_tensor w = tc_param(ctx, zero, TC_F32, 512), v = tc_param(ctx, zero, TC_F32, 512);
    tc_tensor in = tc_input(ctx, "x", TC_F32, 512);
    tc_tensor both[2] = {tc_assign(w, tc_add(w, in)), tc_assign(v, tc_add(tc_flip(v, 0), w))};
    tc_tensors outputs = {both, 2}, inputs = {&in, 1};
    REQUIRE(tc_compile_fn(inputs, outputs, NULL, &f) == TC_OK);
    moved(&up, &down);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 512)), NO_BUFS), TC_OK);
        CHECK_MOVED(i == 0 ? 3 : 1, 0);
    }
    CHECK_EQ_INT(tc_read(w, got, 512), TC_OK);
    CHECK_MOVED(0, 1);
    CHECK(got[3] == 9 && got[511] == 3 * 511);
    CHECK_EQ_INT(tc_read(w, got, 512), TC_OK);
    CHECK_MOVED(0, 0);
    CHECK_EQ_INT(tc_read(v, got, 512), TC_OK); /* 0, then flipped, x + 2 x added */
    CHECK_MOVED(0, 1);
    CHECK_MSG(got[3] == 508 + 6, "%g", got[3]);
    /* A program of the host sees what the device left, and the device what the host changes. */
    REQUIRE(tc_compile_fn(inputs, (tc_tensors){both, 1}, &interp, &host) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 512)), NO_BUFS), TC_OK);
    CHECK_EQ_INT(tc_run(host, TC_BUFS(TC_BUF(x, 512)), NO_BUFS), TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 512)), NO_BUFS), TC_OK);
    CHECK_EQ_INT(tc_read(w, got, 512), TC_OK);
    CHECK_MSG(got[3] == 18, "%g", got[3]);
    tc_program_free(f);
    tc_program_free(host);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(emu_allocations, before);
}

/* So many parts that their totals are a running sum by themselves; exact whatever their order. They
 * are not contiguous, and so are not linked. */
TEST(running_sums_of_very_many_parts_go_both_ways)
{
    enum { LONG = 2050 * 8192 };
    register_emulation();
    float *x = (float *)malloc(LONG * sizeof(*x)), *y = (float *)malloc(LONG * sizeof(*x));
    float *back = (float *)malloc(LONG * sizeof(*x));
    for (int i = 0; i < LONG; i++) {
        x[i] = (float)((int)(tct_random() % 3) - 1);
    }
    tc_ctx *ctx = context_of("planned");
    tc_tensor tx = tc_input(ctx, "x", TC_F32, 2, LONG / 2), grad;
    tc_tensor line = tc_reshape(tc_permute(tx, 1, 0), LONG), sums = tc_cumsum(line, 0);
    tc_tensor sum_of = tc_sum(tc_mul(sums, tc_stop_gradient(line)), TC_ALL, false);
    REQUIRE(!tc_grad(sum_of, &tx, 1, &grad));
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS(tx), TC_TENSORS(sums, grad), NULL, &f) == TC_OK);
    CHECK(explains(f, "2050 parts of 8192"));
    REQUIRE(tc_run(f, TC_BUFS(TC_BUF(x, LONG)), TC_BUFS(TC_BUF(y, LONG), TC_BUF(back, LONG))) ==
            TC_OK);
    int wrong[2] = {0, 0};
    float sum = 0, all = y[LONG - 1];
    for (int i = 0; i < LONG; i++) {
        int from = i % 2 * (LONG / 2) + i / 2;
        wrong[1] += back[from] != all - sum;
        sum += x[from];
        wrong[0] += y[i] != sum;
    }
    CHECK_MSG(!wrong[0] && !wrong[1], "%d and %d of %d differ", wrong[0], wrong[1], LONG);
    tc_program_free(f);
    tc_ctx_free(ctx);
    free(x);
    free(y);
    free(back);
}

/* The mean of each row is divided once, by the kernel that sums the row, not by each that reads
 * it. */
TEST(values_for_rows_are_computed_with_their_sums)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 600, 300), mean = tc_mean(x, TC_AXES(1), true);
    tc_tensor y = tc_sum(tc_square(tc_sub(x, mean)), TC_AXES(0), false);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    CHECK_HAS(f->code->explain, "div gets memory: it would be computed again for many elements");
    CHECK(f->code->kernels[f->code->steps[0].kernel].n_operands == 2);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(updates_overwrite_parameters)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(test_update_sizes); i++) {
        test_update_in_place(ctx, test_update_sizes[i]);
    }
    test_update_at_indices(ctx);
    test_update_rings(ctx, 1);
    tc_ctx_free(ctx);
}

TEST(a_failed_assertion_changes_no_parameter)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    test_failed_assertions(ctx);
    test_failed_assertions_of_captured(ctx);
    tc_ctx_free(ctx);
}

/* ---- reference cases ---- */

static void replay(const char *backend, bool emulated)
{
    static orc_run r;
    static st_file arrays;
    size_t bytes = 0;
    char *text = json_read_file("tests/data/opinfo.json", &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest && st_open(&arrays, "tests/data/opinfo.safetensors"));
    memset(&r, 0, sizeof(r));
    r.manifest = manifest;
    r.arrays = &arrays;
    r.backend = backend;
    r.quiet = true;
    r.every = emulated && !tct_soak ? 4 : 0; /* all of them take minutes */
    CHECK(orc_replay(&r));
    printf("cuda/%s: %d reference cases passed, %d skipped\n", backend, r.passed, r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK(r.passed > (r.every ? 400 : 1700));
    st_close(&arrays);
    json_free(manifest);
    free(text);
}

TEST(reference_cases_on_the_emulation)
{
    register_emulation();
    tc_ctx *probe = context_of("emulated");
    if (!probe) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(probe);
    replay("emulated", true);
    printf("cuda: %d kernels emulated in %d launches\n", (int)emu_kernels, (int)emu_launches);
}

TEST(reference_cases_on_a_gpu)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tci_cuda_backend()->target(NULL, 0, &target);
    if (!target.usable) {
        SKIP("%s", target.why);
    }
    replay("cuda", false);
}

/* ---- NVRTC: the text is compiled, nothing is run ---- */

static tc_status nvrtc_target(void *user, int vector_bits, tc_backend_target *target)
{
    emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "compiled for sm_90a");
    target->usable = true;
    return TC_OK;
}

static int64_t nvrtc_programs;

static tc_status nvrtc_compile(void *user, tc_build *build)
{
    const char *why = "";
    (void)user;
    tc_status status = tci_nvrtc_build(build, "--gpu-architecture=sm_90a", &why);
    nvrtc_programs += build->n;
    CHECK_MSG(status == TC_OK, "%s", why);
    return status;
}

static int nothing;

static tc_status nvrtc_load(void *user, const void *bytes, size_t n, const char *path,
                            void **module)
{
    (void)user;
    (void)bytes;
    (void)n;
    (void)path;
    *module = &nothing;
    return TC_OK;
}

static void *nvrtc_find(void *user, void *module, const char *symbol)
{
    (void)user;
    (void)symbol;
    return module;
}

static void nvrtc_free(void *user, void *module)
{
    (void)user;
    (void)module;
}

TEST(nvrtc_takes_the_text)
{
    const char *why = "";
    if (!tci_nvrtc_get(&why)) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    static tc_backend backend;
    backend = *emulation();
    backend.name = "nvrtc";
    backend.target = nvrtc_target;
    backend.compile = nvrtc_compile;
    backend.module_load = nvrtc_load;
    backend.module_find = nvrtc_find;
    backend.module_free = nvrtc_free;
    REQUIRE(tc_register_backend(&backend) == TC_OK);
    tc_ctx *ctx = context_of("nvrtc");
    enum { COUNT = sizeof(exact) / sizeof(exact[0]) };
    tc_tensor x[COUNT], y[COUNT];
    tc_program *programs[COUNT];
    tc_job jobs[COUNT];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < COUNT; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, M, N);
        y[i] = tc_softmax(tc_cast(exact[i](x[i]), TC_F32), -1);
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &programs[i];
    }
    tc_status status = tc_compile_many(jobs, COUNT, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    printf("cuda: %d programs of NVRTC\n", (int)nvrtc_programs);
    for (int i = 0; i < COUNT; i++) {
        tc_program_free(programs[i]);
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
