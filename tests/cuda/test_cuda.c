/* The CUDA dialect without a GPU: its text is run on the CPU (emulate.h), against the reference
 * cases and the interpreter, and compiled by NVRTC where that library is found. With a GPU the
 * reference cases run on it too. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"
#include "same.h"

#include "../oracle_run.h"
#include "../updates.h"
#include "emulate.h"

/* Plans as the emulation does and compiles nothing, so the interpreter runs the same kernels: the
 * order of a row's reduction depends on the machine that it is planned for. */
static tc_status planned_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "planned");
    target->usable = true;
    return status;
}

static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    (void)build;
    return TC_ERR_COMPILER;
}

static void register_emulation(void)
{
    static bool done;
    static tc_backend planned;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
        planned = *emulation();
        planned.name = "planned";
        planned.target = planned_target;
        planned.compile = planned_compile;
        tc_register_backend(&planned);
    }
}

static tc_ctx *context_for(const char *backend, bool reproducible)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.reproducible = reproducible;
    o.fallback = strcmp(backend, "planned") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

static tc_ctx *context_of(const char *backend)
{
    return context_for(backend, false);
}

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
/* Just beside ties of bf16 and f16, where a rounding to f32 in between would show. */
static tc_tensor beside_ties(tc_tensor x)
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

/* Rows so long that their parts are linked (plan/scan.c): of finite numbers. */
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
    largest,    beside_ties,      dropped,   normal,     dice,
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

/* What tc_explain says about the launches. */
static bool explains(const tc_program *f, const char *note)
{
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    fclose(file);
    bool found = strstr(text, note) != NULL;
    free(text);
    return found;
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

/* ---- every schedule, with tails and dtypes ---- */

/* One program of one input of this shape. */
typedef struct schedule_case {
    const char *note; /* a part of the line that tc_explain prints for the schedule */
    tc_dtype dtype;
    int64_t shape[3];
    int rank;
    tc_tensor (*make)(tc_tensor x);
} schedule_case;

static tc_tensor sc_softmax(tc_tensor x)
{
    return tc_softmax(x, -1);
}
/* The first rows of x, turned, times all of it. */
static tc_tensor sc_few(tc_tensor x)
{
    return tc_matmul(tc_permute(tc_slice(x, 1, 0, 5, 1), 1, 0), x);
}
static tc_tensor sc_one(tc_tensor x)
{
    return tc_matmul(tc_permute(tc_slice(x, 1, 0, 1, 1), 1, 0), x);
}
static tc_tensor sc_few_columns(tc_tensor x)
{
    return tc_matmul(tc_permute(x, 1, 0), tc_slice(x, 1, 0, 5, 1));
}
static tc_tensor sc_places(tc_tensor x)
{
    return tc_add(tc_argmax(x, 1, false), tc_mul(tc_argmin(x, 1, false), 100000));
}
static tc_tensor sc_var(tc_tensor x)
{
    return tc_var(x, TC_AXES(-1), 1, true);
}
static tc_tensor sc_moments(tc_tensor x)
{
    return tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
}
static tc_tensor sc_pool(tc_tensor x)
{
    const tc_pool how = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    return tc_max_pool2d(tc_unsqueeze(x, 0), &how);
}
static tc_tensor sc_pool_inside(tc_tensor x)
{
    const tc_pool how = {.kernel = {2, 2}, .stride = {2, 2}};
    return tc_max_pool2d(tc_unsqueeze(x, 0), &how);
}
static tc_tensor sc_pool_back(tc_tensor x)
{
    tc_tensor grad = TC_NONE;
    tc_grad(tc_sum(tc_square(sc_pool(x)), TC_ALL, false), &x, 1, &grad);
    return grad;
}
static tc_tensor sc_sum(tc_tensor x)
{
    return tc_sum(x, TC_AXES(-1), false);
}
static tc_tensor sc_product(tc_tensor x)
{
    return tc_prod(x, TC_AXES(-1), false);
}
static tc_tensor sc_least(tc_tensor x)
{
    return tc_argmin(x, -1, false);
}
static tc_tensor sc_all(tc_tensor x)
{
    return tc_all(tc_gt(x, -3), TC_AXES(-1), false);
}
static tc_tensor sc_columns(tc_tensor x)
{
    return tc_sum(x, TC_AXES(0), false);
}
static tc_tensor sc_columns_each(tc_tensor x)
{
    return tc_sum(x, TC_AXES(1), false);
}
static tc_tensor sc_softmax_columns(tc_tensor x)
{
    return tc_softmax(tc_permute(x, 1, 0), 1);
}
static tc_tensor sc_images(tc_tensor x)
{
    tc_tensor var, mean;
    tc_var_mean(x, TC_AXES(0, 2), 0, true, &var, &mean);
    return tc_mul(tc_sub(x, mean), tc_rsqrt(tc_add(var, 1)));
}
static tc_tensor sc_column_best(tc_tensor x)
{
    return tc_argmax(x, 0, false);
}
static tc_tensor sc_running(tc_tensor x)
{
    return tc_add(tc_cumsum(x, 0), x);
}
static tc_tensor sc_running_rows(tc_tensor x)
{
    return tc_mul(tc_cumsum(x, 1), 2);
}
static tc_tensor sc_running_alone(tc_tensor x)
{
    return tc_cumsum(x, 1);
}
static tc_tensor sc_running_weights(tc_tensor x)
{
    return tc_cumsum(tc_softmax(x, -1), -1);
}
static tc_tensor sc_running_share(tc_tensor x)
{
    return tc_cumsum(tc_div(x, tc_max(x, TC_AXES(0), true)), 0);
}
static tc_tensor sc_running_back(tc_tensor x)
{
    tc_tensor grad, y = tc_mul(tc_cumsum(x, 1), tc_sin(x));
    return tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &grad) ? y : grad;
}
static tc_tensor sc_running_product(tc_tensor x)
{
    return tc_cumprod(tc_add(tc_mul(x, 2), 1), 1);
}
static tc_tensor sc_running_most(tc_tensor x)
{
    tc_tensor most, place;
    tc_cummax(tc_mul(x, tc_cos(tc_mul(x, 0.001))), 1, &most, &place);
    return tc_cat(TC_TENSORS(tc_cast(most, TC_F64), tc_cast(place, TC_F64)), 0);
}
static tc_tensor sc_turned(tc_tensor x)
{
    return tc_add(tc_permute(x, 1, 0), 1);
}
static tc_tensor sc_both(tc_tensor x)
{
    return tc_sub(tc_mul(tc_permute(x, 1, 0), 2), tc_flip(tc_permute(x, 1, 0), 0));
}
static tc_tensor sc_square(tc_tensor x)
{
    return tc_add(x, tc_permute(x, 1, 0));
}
static tc_tensor sc_behind(tc_tensor x)
{
    return tc_add(tc_permute(x, 2, 0, 1), 3);
}
static tc_tensor sc_padded(tc_tensor x)
{
    return tc_add(tc_permute(tc_pad(x, 1, 5, 7, 2), 1, 0), 1);
}
static tc_tensor sc_wave(tc_tensor x)
{
    return tc_sin(tc_cos(tc_mul(x, 3)));
}

static tc_tensor sc_gram(tc_tensor x)
{
    return tc_matmul(x, tc_permute(x, 1, 0));
}
static tc_tensor sc_inner(tc_tensor x)
{
    return tc_relu(tc_add(tc_matmul(tc_permute(x, 1, 0), x), 0.5));
}
static tc_tensor sc_long_side(tc_tensor x)
{
    return tc_matmul(tc_permute(x, 1, 0), tc_slice(x, 1, 7, 71, 1));
}
static tc_tensor sc_wide_side(tc_tensor x)
{
    return tc_matmul(tc_permute(tc_slice(x, 1, 7, 71, 1), 1, 0), x);
}
static tc_tensor sc_evaluated(tc_tensor x)
{
    return tc_matmul(tc_mul(x, 3), tc_add(tc_permute(x, 1, 0), 1));
}
static tc_tensor sc_dot(tc_tensor x)
{
    return tc_matmul(x, x);
}
static tc_tensor sc_batched(tc_tensor x)
{
    return tc_matmul(x, tc_permute(x, 0, 2, 1));
}

/* Images of 24 channels, and filters that are another part of x. */
typedef struct image_case {
    int64_t images, height, width, filters, kernel;
    tc_conv how;
} image_case;
static tc_tensor sc_image(tc_tensor x, const image_case *c)
{
    int64_t groups = c->how.groups ? c->how.groups : 1, each = 24 / groups;
    int64_t n = c->images * 24 * c->height * c->width, weights = each * c->kernel * c->kernel;
    tc_tensor flat = tc_reshape(x, -1);
    tc_tensor image = tc_reshape(tc_slice(flat, 0, 0, n, 1), c->images, 24, c->height, c->width);
    tc_tensor filter = tc_slice(flat, 0, n, n + c->filters * weights, 1);
    filter = tc_reshape(filter, c->filters, each, c->kernel, c->kernel);
    return tc_conv2d(image, filter, TC_NONE, &c->how);
}
static const image_case image_same = {2, 9, 7, 33, 3, {.padding = {1, 1}}};
static const image_case image_large = {1, 184, 183, 64, 1, {.stride = {1, 1}}};
static const image_case image_apart = {
    2, 14, 13, 34, 3, {.padding = {1, 2}, .stride = {2, 2}, .dilation = {1, 2}}};
static const image_case image_groups = {1, 8, 9, 96, 3, {.padding = {1, 1}, .groups = 2}};
static const image_case image_each = {3, 11, 13, 24, 3, {.padding = {1, 1}, .groups = 24}};
static const image_case image_each_apart = {
    2, 9, 10, 48, 5, {.padding = {2, 2}, .stride = {2, 2}, .groups = 24}};
static const image_case image_few = {2, 7, 9, 5, 3, {.padding = {2, 0}, .dilation = {2, 1}}};
static const image_case image_four = {1, 8, 16, 32, 3, {.padding = {1, 1}, .groups = 4}};
static const image_case image_rows = {1, 66, 66, 32, 3, {.padding = {1, 1}, .groups = 4}};
static tc_tensor sc_windows_rows(tc_tensor x)
{
    return sc_image(x, &image_rows);
}
static tc_tensor sc_windows_each(tc_tensor x)
{
    return tc_relu(sc_image(x, &image_each));
}
static tc_tensor sc_windows_each_apart(tc_tensor x)
{
    return sc_image(x, &image_each_apart);
}
static tc_tensor sc_windows_few(tc_tensor x)
{
    return sc_image(tc_add(x, 1), &image_few);
}
static tc_tensor sc_windows_four(tc_tensor x)
{
    return sc_image(x, &image_four);
}
static tc_tensor sc_windows(tc_tensor x)
{
    return tc_relu(sc_image(x, &image_same));
}
static tc_tensor sc_windows_large(tc_tensor x)
{
    return sc_image(x, &image_large);
}
static tc_tensor sc_windows_apart(tc_tensor x)
{
    return sc_image(tc_mul(x, 2), &image_apart);
}
static tc_tensor sc_windows_groups(tc_tensor x)
{
    return sc_image(x, &image_groups);
}
/* Windows of channels by themselves, which lie last in the image, the filter and the result. */
typedef struct last_case {
    int64_t images, height, width, channels, kernel, stride, apart;
} last_case;
static tc_tensor sc_last_windows(tc_tensor image, const last_case *c, double fill)
{
    int64_t over = (c->kernel - 1) * c->apart + 1, pad = over / 2;
    tc_tensor x = tc_pad(tc_pad(image, 1, pad, pad, fill), 2, pad, pad, fill);
    for (int i = 0; i < 2; i++) {
        x = tc_slice(tc_unfold(x, 1 + i, over, c->stride), 4 + i, 0, over, c->apart);
    }
    return x;
}
static tc_tensor sc_last(tc_tensor x, const last_case *c)
{
    int64_t n = c->images * c->height * c->width * c->channels, places = c->kernel * c->kernel;
    tc_tensor flat = tc_reshape(x, -1), part[2];
    part[0] = tc_reshape(tc_slice(flat, 0, 0, n, 1), c->images, c->height, c->width, c->channels);
    part[0] = sc_last_windows(part[0], c, 0);
    part[1] = tc_reshape(tc_slice(flat, 0, n, n + c->channels * places, 1), c->kernel, c->kernel,
                         c->channels);
    return tc_relu(tc_einsum("nhwcij,ijc->nhwc", TC_TENSORS_N(part, 2)));
}
static const last_case last_same = {1, 40, 48, 64, 3, 1, 1};
static const last_case last_halving = {1, 51, 66, 72, 5, 2, 1};
static const last_case last_apart = {2, 14, 15, 96, 3, 1, 2};
static const last_case last_few = {3, 9, 8, 12, 3, 1, 1};
static tc_tensor sc_last_same(tc_tensor x)
{
    return sc_last(x, &last_same);
}
static tc_tensor sc_last_halving(tc_tensor x)
{
    return sc_last(x, &last_halving);
}
static tc_tensor sc_last_apart(tc_tensor x)
{
    return sc_last(x, &last_apart);
}
static tc_tensor sc_last_few(tc_tensor x)
{
    return sc_last(x, &last_few);
}
/* Filters of few channels, which lie together. */
static tc_tensor sc_last_filters(tc_tensor x)
{
    const last_case how = {1, 33, 32, 3, 3, 1, 1};
    tc_tensor flat = tc_reshape(x, -1), part[2];
    part[0] = tc_reshape(tc_slice(flat, 0, 0, 3168, 1), 1, 33, 32, 3);
    part[0] = sc_last_windows(part[0], &how, 0);
    part[1] = tc_reshape(tc_slice(flat, 0, 3168, 9864, 1), 3, 3, 3, 248);
    return tc_einsum("nhwcij,ijck->nhwk", TC_TENSORS_N(part, 2));
}
static tc_tensor sc_last_pool(tc_tensor x)
{
    const last_case how = {1, 0, 0, 0, 3, 2, 1};
    return tc_max(sc_last_windows(tc_unsqueeze(x, 0), &how, -INFINITY), TC_AXES(-1, -2), false);
}
/* Three channels and zeros, which lie together in the result, around an image. */
static tc_tensor sc_channels_together(tc_tensor x)
{
    return tc_permute(tc_pad(tc_pad(tc_pad(x, 0, 0, 1, 0), 1, 2, 2, 0), 2, 3, 3, 0), 1, 2, 0);
}
/* To the image and to the filter at once. */
static tc_tensor sc_gradient(tc_tensor x, const image_case *c)
{
    tc_tensor y = sc_image(x, c), grad = TC_NONE;
    tc_tensor sum = tc_sum(tc_mul(tc_cast(y, TC_F32), 0.5), TC_ALL, false);
    tc_grad(tc_mul(sum, sum), &x, 1, &grad);
    return grad;
}
static tc_tensor sc_windows_back(tc_tensor x)
{
    return sc_gradient(x, &image_same);
}
static tc_tensor sc_windows_each_back(tc_tensor x)
{
    return sc_gradient(x, &image_each);
}
static tc_tensor sc_windows_four_back(tc_tensor x)
{
    return sc_gradient(x, &image_four);
}
static tc_tensor sc_windows_apart_back(tc_tensor x)
{
    return sc_gradient(x, &image_apart);
}
static tc_tensor sc_attention(tc_tensor x)
{
    tc_tensor scores = tc_mul(tc_matmul(x, tc_transpose(x, -2, -1)), 0.125);
    return tc_matmul(tc_softmax(scores, -1), x);
}
static tc_tensor sc_product_rows(tc_tensor x)
{
    return tc_log_softmax(tc_matmul(x, tc_transpose(x, -2, -1)), -1);
}
/* Numbers of eighths, from 0 to 7. */
static tc_tensor sc_eighths(tc_tensor x)
{
    return tc_cast(tc_floor(tc_add(x, 4)), TC_I32);
}
static tc_tensor sc_rows_added(tc_tensor x)
{
    tc_tensor which = tc_reshape(sc_eighths(tc_slice(x, 1, 0, 1, 1)), -1);
    return tc_index_add(tc_mul(tc_slice(x, 0, 0, 8, 1), 2), 0, which, tc_sub(x, 1));
}
static tc_tensor sc_columns_added(tc_tensor x)
{
    return tc_scatter_add(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(x), tc_mul(x, 0.3));
}
/* One line, and rows that are raised: what was stored last is read again soon. */
static tc_tensor sc_line_added(tc_tensor x)
{
    return tc_scatter_add(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(x), tc_mul(x, 0.3));
}
static tc_tensor sc_rows_raised(tc_tensor x)
{
    tc_tensor which = sc_eighths(tc_slice(x, 1, 0, 1, 1));
    which = tc_expand(tc_floor_divide(which, 3), tc_size(x, 0), tc_size(x, 1));
    return tc_scatter_max(tc_slice(x, 0, 0, 8, 1), 0, which, tc_sin(x));
}
static tc_tensor sc_lines_set(tc_tensor x)
{
    return tc_scatter(tc_slice(x, 1, 0, 8, 1), 1, sc_eighths(x), x);
}
static tc_tensor sc_part_raised(tc_tensor x)
{
    tc_tensor part = tc_slice(x, 1, 0, -3, 1);
    return tc_scatter_max(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(part), tc_neg(part));
}
static tc_tensor sc_read_back(tc_tensor x)
{
    tc_tensor grad, row = tc_gather(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(x));
    return tc_grad(tc_sum(tc_square(row), TC_ALL, false), &x, 1, &grad) ? row : grad;
}

static const schedule_case schedule_cases[] = {
    {"lanes", TC_F32, {40, 300}, 2, sc_rows_added},
    {"lanes", TC_F32, {9, 33}, 2, sc_rows_added},
    {"scalar", TC_F32, {301}, 1, sc_line_added},
    {"lanes", TC_F64, {40, 129}, 2, sc_rows_added},
    {"lanes", TC_F32, {39, 130}, 2, sc_rows_raised},
    {"lanes", TC_F64, {50, 70}, 2, sc_columns_added},
    {"lanes", TC_BF16, {50, 131}, 2, sc_columns_added},
    {"lanes", TC_F32, {77, 25}, 2, sc_lines_set},
    {"lanes", TC_F16, {40, 259}, 2, sc_part_raised},
    {"lanes", TC_F32, {64, 130}, 2, sc_read_back},
    {"LANES", TC_F32, {2, 40, 33}, 3, sc_attention},
    {"LANES", TC_F32, {70, 20}, 2, sc_attention},
    {"LANES", TC_F64, {33, 16}, 2, sc_attention},
    {"LANES", TC_F32, {2, 150, 7}, 3, sc_product_rows},
    {"tiles 16x128", TC_F32, {130, 140}, 2, sc_few},
    {"parts of", TC_F32, {700, 45}, 2, sc_few},
    {"parts of", TC_F64, {390, 70}, 2, sc_few_columns},
    {"parts of", TC_BF16, {1100, 130}, 2, sc_one},
    {"parts of", TC_F32, {512, 72}, 2, sc_one},
    {"mul_argmax_argmin", TC_F32, {2, 65536}, 2, sc_places},
    {"mul_argmax_argmin", TC_I8, {1, 70000}, 2, sc_places},
    {"mul_argmax_argmin", TC_BF16, {3, 24000}, 2, sc_places},
    {"tiles 64x64", TC_F32, {64, 32}, 2, sc_gram},
    {"tiles 64x64", TC_F32, {130, 51}, 2, sc_gram},
    {"tiles 64x64", TC_F32, {16, 192}, 2, sc_inner},
    {"tiles 16x128", TC_F32, {37, 70}, 2, sc_inner},
    {"tiles 64x64", TC_F64, {65, 33}, 2, sc_evaluated},
    {"tiles 16x128", TC_I32, {70, 20}, 2, sc_evaluated},
    {"tiles 16x128", TC_BF16, {70, 40}, 2, sc_gram},
    {"tiles", TC_F32, {3, 66, 40}, 3, sc_batched},
    {"LANES", TC_F32, {3, 700}, 2, sc_gram}, /* lanes of neighbours, and a sum of them */
    {"LANES(", TC_F32, {34003}, 1, sc_dot},
    {"LANES", TC_F32, {3, 11001}, 2, sc_gram},
    {"orders of sums", TC_F32, {4703, 7}, 2, sc_inner},
    {"tiles 128x128", TC_F32, {2040, 19}, 2, sc_gram},
    {"64 by 128 threads", TC_F32, {50, 4200}, 2, sc_long_side},
    {"128 by 128 threads", TC_F32, {50, 4200}, 2, sc_wide_side},
    {"tiles 128x128", TC_F32, {17, 2048}, 2, sc_inner},
    {"tiles 64x128", TC_F32, {809664}, 1, sc_windows_large},
    {"tiles 16x128", TC_F32, {12096}, 1, sc_windows_groups},
    {"points", TC_F32, {10512}, 1, sc_windows_each},
    {"points", TC_BF16, {10512}, 1, sc_windows_each},
    {"points", TC_F64, {5520}, 1, sc_windows_each_apart},
    {"points", TC_F16, {5520}, 1, sc_windows_each_apart},
    {"points", TC_F32, {4104}, 1, sc_windows_few},
    {"points", TC_I64, {4104}, 1, sc_windows_few},
    {"points", TC_F32, {4800}, 1, sc_windows_four},
    {"points by 256 threads, 8 each", TC_F32, {106272}, 1, sc_windows_rows},
    {"points by 256 threads, 4 each", TC_BF16, {3, 60, 70}, 3, sc_channels_together},
    {"vector 4 lanes, windows by 128 threads, 8 each", TC_F32, {123456}, 1, sc_last_same},
    {"vector 8 lanes, windows by 128 threads, 4 each", TC_BF16, {123456}, 1, sc_last_same},
    {"vector 2 lanes, windows by 128 threads, 8 each", TC_F64, {123456}, 1, sc_last_same},
    {"vector 4 lanes, windows by 128 threads, 3 each", TC_F32, {244152}, 1, sc_last_halving},
    {"vector 8 lanes, windows by 128 threads, 3 each", TC_F16, {41184}, 1, sc_last_apart},
    {"vector 4 lanes, windows by 128 threads, 1 each", TC_BF16, {2700}, 1, sc_last_few},
    {"vector 8 lanes, windows by 128 threads, 1 each", TC_BF16, {15, 17, 64}, 3, sc_last_pool},
    {"vector 2 lanes, windows by 128 threads, 7 each", TC_F32, {40, 84, 66}, 3, sc_last_pool},
    {"vector 8 lanes, windows by 128 threads, 4 each", TC_BF16, {9864}, 1, sc_last_filters},
    {"points", TC_F32, {10512}, 1, sc_windows_each_back},
    {"points", TC_F32, {4800}, 1, sc_windows_four_back},
    {"rows in registers", TC_F32, {5, 8192}, 2, sc_softmax},
    {"rows in registers", TC_F32, {3, 8190}, 2, sc_softmax},
    {"rows in registers", TC_F32, {7, 1003}, 2, sc_softmax},
    {"rows in registers", TC_F32, {4, 20000}, 2, sc_softmax},
    {"rows in registers", TC_F32, {9, 33}, 2, sc_softmax},
    {"rows in registers", TC_F64, {3, 1500}, 2, sc_softmax},
    {"rows in registers", TC_BF16, {3, 2051}, 2, sc_softmax},
    {"rows in registers", TC_F32, {5, 3001}, 2, sc_var},
    {"rows in registers", TC_F64, {9, 33}, 2, sc_var},
    {"rows", TC_F32, {2, 70001}, 2, sc_var},
    {"rows in registers", TC_F16, {3, 4096}, 2, sc_moments},
    {"rows in registers", TC_F32, {2, 3, 777}, 3, sc_moments},
    {"rows in registers", TC_F32, {6, 4099}, 2, sc_sum},
    {"rows in registers", TC_I32, {4, 700}, 2, sc_product},
    {"rows in registers", TC_F32, {6, 1111}, 2, sc_least},
    {"rows in registers", TC_I8, {6, 600}, 2, sc_least},
    {"rows in registers", TC_F32, {6, 900}, 2, sc_all},
    {"rows", TC_F32, {2, 70001}, 2, sc_softmax},
    {"vector 16 lanes, rows in registers, 32 a block", TC_F32, {160, 32}, 2, sc_softmax},
    {"vector 8 lanes, rows in registers, 16 a block", TC_F64, {80, 32}, 2, sc_softmax},
    {"vector 64 lanes, rows in registers, 16 a block", TC_BF16, {130, 20}, 2, sc_softmax},
    {"vector 128 lanes, rows in registers, 8 a block", TC_F32, {67, 200}, 2, sc_moments},
    {"vector 32 lanes, rows in registers, 32 a block", TC_F32, {132, 50}, 2, sc_var},
    {"vector 16 lanes, rows in registers, 32 a block", TC_F16, {128, 24}, 2, sc_moments},
    {"16 a block", TC_I32, {130, 33}, 2, sc_product},
    {"8 a block", TC_I8, {77, 40}, 2, sc_least},
    {"32 a block", TC_F32, {132, 60}, 2, sc_all},
    {"points by 256 threads, 1 each", TC_F32, {3, 21, 44}, 3, sc_pool},
    {"points by 256 threads, 1 each", TC_BF16, {2, 14, 33}, 3, sc_pool},
    {"points by 256 threads, 1 each", TC_F32, {2, 18, 40}, 3, sc_pool_inside},
    {"points by 256 threads, 1 each", TC_F32, {40, 12, 14}, 3, sc_pool_inside},
    {"points by 256 threads, 1 each", TC_F32, {2, 19, 40}, 3, sc_pool_back},
    {"tile 1x1", TC_F32, {300, 960}, 2, sc_columns},
    {"tile 1x1", TC_F64, {40, 128}, 2, sc_columns},
    {"points by 256 threads, 1 each", TC_F32, {300, 1000}, 2, sc_columns},
    {"points by 256 threads, 1 each", TC_F64, {40, 77}, 2, sc_columns},
    {"points by 256 threads, 1 each", TC_F32, {130, 40, 33}, 3, sc_columns_each},
    {"rows in registers", TC_F32, {1000, 16}, 2, sc_softmax_columns},
    {"rows in registers", TC_F32, {16, 5, 63}, 3, sc_images},
    {"rows in registers", TC_BF16, {9, 40, 130}, 3, sc_images},
    {"lanes", TC_F32, {1000, 5}, 2, sc_columns},
    {"tile 1x1", TC_BF16, {40, 256}, 2, sc_column_best},
    {"points by 256 threads, 1 each", TC_BF16, {40, 259}, 2, sc_column_best},
    {"tile 1x1", TC_F32, {40, 300}, 2, sc_running},
    {"tile 1x1", TC_I32, {16, 70}, 2, sc_running},
    {"class CHAIN", TC_BF16, {40, 130}, 2, sc_running},
    {"BLOCK_SCAN(128)", TC_F32, {300, 35}, 2, sc_running_rows},
    {"rows in registers", TC_F32, {5, 8192}, 2, sc_running_rows},
    {"rows in registers", TC_F32, {3, 8190}, 2, sc_running_rows},
    {"rows in registers", TC_F64, {3, 1025}, 2, sc_running_rows},
    {"rows in registers", TC_BF16, {3, 2051}, 2, sc_running_rows},
    {"rows in registers", TC_I32, {4, 700}, 2, sc_running_rows},
    {"rows in registers", TC_U8, {2, 127}, 2, sc_running_rows},
    {"73 linked parts of 959", TC_F32, {2, 70007}, 2, sc_running_rows},
    {"BLOCK_SCAN(128)", TC_F32, {2, 70007}, 2, sc_running_rows},
    {"35 parts of 2048", TC_BF16, {70003}, 1, sc_running},
    {"rows in registers", TC_F32, {3, 999}, 2, sc_running_back},
    {"10 linked parts of 2100", TC_F32, {2, 21000}, 2, sc_running_back},
    {"20 parts of 64", TC_F32, {1280, 70}, 2, sc_running},
    {"10 linked parts of 2100", TC_I32, {2, 21000}, 2, sc_running_product},
    {"35 linked parts of 2048", TC_U8, {1, 70003}, 2, sc_running_product},
    {"10 linked parts of 2100", TC_F32, {2, 21000}, 2, sc_running_most},
    {"35 parts of 2048", TC_BF16, {1, 70003}, 2, sc_running_most},
    {"BLOCK_SCAN", TC_F64, {3000, 2, 3}, 3, sc_running},
    {"1 launch of 1 kernel", TC_F32, {5, 3001}, 2, sc_running_weights},
    {"1 launch of 1 kernel", TC_BF16, {300, 70}, 2, sc_running_weights},
    {"1 launch of 1 kernel", TC_F64, {300, 1000}, 2, sc_running_weights},
    {"1 launch of 1 kernel", TC_F32, {60, 300}, 2, sc_running_share},
    {"1 launch of 1 kernel", TC_F32, {3, 65536}, 2, sc_running_alone},
    {"BLOCK_SCAN(256)", TC_I64, {2, 70001}, 2, sc_running_rows},
    {"squares", TC_F32, {128, 192}, 2, sc_turned},
    {"squares", TC_F32, {70, 133}, 2, sc_turned},
    {"squares", TC_F64, {64, 65}, 2, sc_turned},
    {"squares", TC_U8, {130, 200}, 2, sc_turned},
    {"squares", TC_BF16, {100, 190}, 2, sc_both},
    {"squares", TC_F32, {150, 150}, 2, sc_square},
    {"squares", TC_I64, {33, 7, 50}, 3, sc_behind},
    {"squares", TC_F32, {90, 81}, 2, sc_padded},
    {"vector", TC_F32, {100003}, 1, sc_wave},
    {"vector", TC_F64, {5001}, 1, sc_wave},
};

/* Contractions that are too small for all of a device: reproducible ones are not cut into parts. */
static const schedule_case whole_cases[] = {
    {"SPLIT(512)", TC_F32, {70, 1000}, 2, sc_gram},
    {"SPLIT(512)", TC_F32, {1024, 66}, 2, sc_inner},
    {"SPLIT(512)", TC_F32, {2, 65, 513}, 3, sc_batched},
    {"tiles 64x64", TC_F32, {10160}, 1, sc_windows},
    {"tiles 64x64", TC_BF16, {10160}, 1, sc_windows},
    {"tiles 64x64", TC_I32, {10160}, 1, sc_windows},
    {"tiles 64x64", TC_F32, {16080}, 1, sc_windows_apart},
    {"tiles 64x64", TC_F16, {16080}, 1, sc_windows_apart},
    {"tiles 64x64", TC_F32, {10160}, 1, sc_windows_back},
    {"tiles 64x64", TC_F32, {16080}, 1, sc_windows_apart_back},
};

static int64_t case_elements(const schedule_case *c)
{
    int64_t n = 1;
    for (int i = 0; i < c->rank; i++) {
        n *= c->shape[i];
    }
    return n;
}

/* The input's bytes; the caller frees. */
static char *case_input(const schedule_case *c)
{
    int64_t n = case_elements(c);
    int size = tci_dtype_get(c->dtype)->bytes;
    char *in = (char *)calloc((size_t)n, (size_t)size);
    for (int64_t i = 0; i < n; i++) {
        tci_value v = {.i = (i * 7919 + i / 31) % 251 - 125};
        if (tci_dtype_is_float(c->dtype)) {
            v.f = (double)v.i / 32.0;
        }
        tci_value_store(c->dtype, in + i * size, v);
    }
    return in;
}

enum { MOST_CASES = sizeof(schedule_cases) / sizeof(schedule_cases[0]) };

/* Compiles all cases at once; `schedules`: a file of those that are forced, or NULL. */
static tc_ctx *compile_cases(const char *backend, const schedule_case *cases, int n,
                             const char *schedules, tc_program **programs, int64_t *bytes)
{
    const tc_options options = {.schedule = schedules};
    tc_ctx *ctx = context_for(backend, cases == whole_cases);
    tc_tensor x[MOST_CASES], y[MOST_CASES];
    tc_job jobs[MOST_CASES];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; ctx && i < n; i++) {
        const schedule_case *c = &cases[i];
        int64_t sizes[4] = {c->dtype, c->shape[0], c->shape[1], c->shape[2]};
        x[i] = tc_input_at(ctx, "x", c->rank + 1, sizes, TC_HERE);
        y[i] = c->make(x[i]);
        bytes[i] = tc_nbytes(y[i]);
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &programs[i];
    }
    if (ctx) {
        tc_status status = tc_compile_many(jobs, n, &options);
        CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(ctx));
    }
    return ctx;
}

/* Which schedule is the cheapest depends on the machine: what is expected is what the emulated one
 * takes. */
static void compare_case(const schedule_case *c, tc_program *f, tc_program *want_f, int64_t bytes,
                         bool noted)
{
    int64_t n = case_elements(c) * tci_dtype_get(c->dtype)->bytes, wrong = 0;
    char *in = case_input(c), *got = (char *)calloc(1, (size_t)bytes);
    char *want = (char *)calloc(1, (size_t)bytes);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((void *)in, n)), TC_BUFS(TC_BUF((void *)got, bytes))),
                 TC_OK);
    CHECK_EQ_INT(tc_run(want_f, TC_BUFS(TC_BUF((void *)in, n)),
                        TC_BUFS(TC_BUF((void *)want, bytes))),
                 TC_OK);
    for (int64_t j = 0; j < bytes; j++) {
        wrong += got[j] != want[j];
    }
    CHECK_MSG(wrong == 0, "%s (%lld, %lld): %lld of %lld bytes differ", c->note,
              (long long)c->shape[0], (long long)c->shape[1], (long long)wrong, (long long)bytes);
    CHECK_MSG(!noted || explains(f, c->note), "(%lld, %lld) is not scheduled as \"%s\"",
              (long long)c->shape[0], (long long)c->shape[1], c->note);
    free(in);
    free(got);
    free(want);
}

static void compare_table(const char *backend, const schedule_case *cases, int n, bool noted)
{
    tc_program *programs[MOST_CASES] = {NULL}, *planned[MOST_CASES] = {NULL};
    int64_t bytes[MOST_CASES];
    register_emulation();
    tc_ctx *ctx = compile_cases(backend, cases, n, NULL, programs, bytes);
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *plan = compile_cases("planned", cases, n, NULL, planned, bytes);
    for (int i = 0; i < n; i++) {
        if (programs[i] && planned[i]) {
            compare_case(&cases[i], programs[i], planned[i], bytes[i], noted);
        }
        tc_program_free(programs[i]);
        tc_program_free(planned[i]);
    }
    tc_ctx_free(ctx);
    tc_ctx_free(plan);
}

static void compare_cases(const char *backend, bool noted)
{
    compare_table(backend, schedule_cases, MOST_CASES, noted);
    compare_table(backend, whole_cases, sizeof(whole_cases) / sizeof(whole_cases[0]), noted);
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

/* ---- rows by fewer threads than a warp has ---- */

/* In a dtype whose sums tell orders apart. */
static tc_tensor sc_row(tc_tensor x)
{
    return tc_mul(tc_dtype_of(x) == TC_BF16 ? tc_cast(x, TC_F32) : x, 1.1);
}
static tc_tensor sc_row_values(tc_tensor x)
{
    tc_tensor y = sc_row(x), sum = tc_sum(y, TC_AXES(-1), false);
    tc_tensor most = tc_max(y, TC_AXES(-1), false), place = tc_argmax(y, -1, false);
    return tc_cat(TC_TENSORS(tc_cast(sum, TC_F64), tc_cast(most, TC_F64), tc_cast(place, TC_F64)),
                  0);
}
static tc_tensor sc_row_log(tc_tensor x)
{
    tc_tensor y = sc_row(x), most = tc_max(y, TC_AXES(-1), true);
    return tc_add(most, tc_log(tc_sum(tc_exp(tc_sub(y, most)), TC_AXES(-1), true)));
}

static tc_tensor sc_row_running(tc_tensor x)
{
    return tc_cumsum(sc_row(x), 1);
}
static tc_tensor sc_row_reverse(tc_tensor x)
{
    return tc_flip(tc_cumsum(tc_flip(sc_row(x), 1), 1), 1);
}
/* A reduction and a scan of one row. */
static tc_tensor sc_row_shares(tc_tensor x)
{
    return tc_cumsum(tc_softmax(sc_row(x), 1), 1);
}

/* So few points that even short rows are not many side by side, but as many as fill a warp. */
enum { ROW_POINTS = 8, ROW_BLOCK = 64, ROW_VECTORS = 9, ROW_PROGRAMS = 4, ROW_SIZES = 14 };
typedef tc_tensor (*row_program)(tc_tensor x);
static const row_program row_programs[ROW_PROGRAMS] = {sc_softmax, sc_moments, sc_row_values,
                                                       sc_row_log};
static const row_program running_programs[ROW_PROGRAMS] = {sc_row_running, sc_row_reverse,
                                                           sc_running_most, sc_row_shares};
static const int row_sizes[ROW_SIZES] = {2, 5, 8, 15, 17, 31, 33, 63, 65, 100, 129, 257, 512, 1023};

/* Programs of rows that so many threads can hold; returns how many. Those of f32 are all, of other
 * dtypes some. */
static int row_cases(const row_program *make, tc_dtype t, int threads, const char *note,
                     schedule_case *cases)
{
    int n = 0, held = 16 / tci_dtype_get(t == TC_F64 ? t : TC_F32)->bytes;
    for (int i = 0; i < ROW_SIZES; i += t == TC_F32 ? 1 : 5) {
        for (int p = 0; p < ROW_PROGRAMS && row_sizes[i] <= ROW_VECTORS * threads * held; p++) {
            schedule_case c = {note, t, {ROW_POINTS, row_sizes[i]}, 2, make[p]};
            cases[n++] = c;
        }
    }
    return n;
}

/* Forces a schedule on all kernels of the programs, where it fits. */
static void write_schedules(FILE *file, tc_program *const *programs, int n, const char *schedule)
{
    for (int i = 0; i < n; i++) {
        char name[100];
        for (const char *at = programs[i]->code->explain; at; at = strchr(at + 1, '\n')) {
            if (sscanf(at, "%*d. %99[a-z0-9_]", name) == 1) {
                fprintf(file, "%s: %s\n", name, schedule);
            }
        }
    }
}

static void compare_rows(const row_program *make, tc_dtype t, int threads)
{
    char schedule[60], note[60], path[] = "/tmp/tc-test-rows-XXXXXX";
    schedule_case cases[ROW_PROGRAMS * ROW_SIZES];
    tc_program *programs[MOST_CASES] = {NULL}, *planned[MOST_CASES] = {NULL};
    int64_t bytes[MOST_CASES];
    snprintf(schedule, sizeof(schedule), "row threads=%d rows=%d", threads, ROW_BLOCK / threads);
    snprintf(note, sizeof(note), "rows in registers, %d a block", ROW_BLOCK / threads);
    int n = row_cases(make, t, threads, note, cases);
    tc_ctx *plan = compile_cases("planned", cases, n, NULL, planned, bytes);
    FILE *file = fdopen(mkstemp(path), "w");
    REQUIRE(plan && file);
    write_schedules(file, planned, n, schedule);
    fclose(file);
    tc_ctx *ctx = compile_cases("emulated", cases, n, path, programs, bytes);
    for (int i = 0; i < n; i++) {
        if (programs[i] && planned[i]) {
            compare_case(&cases[i], programs[i], planned[i], bytes[i], true);
        }
        tc_program_free(programs[i]);
        tc_program_free(planned[i]);
    }
    tc_ctx_free(ctx);
    tc_ctx_free(plan);
    remove(path);
}

TEST(rows_by_parts_of_warps)
{
    static const tc_dtype dtypes[] = {TC_F32, TC_BF16, TC_F64};
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (int threads = 4; threads <= 16; threads *= 2) {
        for (int i = 0; i < TCI_COUNT(dtypes); i++) {
            compare_rows(row_programs, dtypes[i], threads);
        }
    }
    tc_ctx_free(ctx);
}

TEST(running_rows_by_parts_of_warps)
{
    static const struct {
        tc_dtype dtype;
        int threads;
    } cases[] = {{TC_F32, 4}, {TC_F32, 32}, {TC_BF16, 8}, {TC_BF16, 32}, {TC_F64, 4}, {TC_F64, 16}};
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        compare_rows(running_programs, cases[i].dtype, cases[i].threads);
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

TEST(every_schedule_has_the_bits_of_its_plan)
{
    compare_cases("emulated", true);
}

TEST(every_schedule_has_the_bits_of_its_plan_on_a_gpu)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tci_cuda_backend()->target(NULL, 0, &target);
    if (!target.usable) {
        SKIP("%s", target.why);
    }
    compare_cases("cuda", false);
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

/* The mean of each row is divided once, by who sums the row, and not by each that reads it. */
static bool meets_to_store(tc_dtype t, int64_t n, expression make)
{
    tc_ctx *ctx = context_of("emulated");
    tc_program *f = NULL;
    REQUIRE(ctx && !tc_compile(make(tc_input(ctx, "x", t, 64, n)), &f));
    bool meets = strstr(tc_source(f), "_together(p") != NULL;
    tc_program_free(f);
    tc_ctx_free(ctx);
    return meets;
}

/* Threads that hold rows store aligned blocks where rows are not: that these have the right bits is
 * seen above. Others may come to a store apart, and halves cost more to move. */
TEST(rows_that_are_not_aligned_are_stored_in_blocks)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(ctx);
    CHECK(meets_to_store(TC_F32, 301, sc_softmax));
    CHECK(!meets_to_store(TC_F32, 304, sc_softmax));
    CHECK(!meets_to_store(TC_F32, 301, chain));
}

/* So many parts that their totals are a running sum by themselves; exact whatever their order. They
 * do not lie in memory one after the other, and so are not linked. */
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

TEST(updates_lie_where_parameters_lay)
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
