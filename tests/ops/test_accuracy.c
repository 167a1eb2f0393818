/* Long sums of products keep their digits: contractions against f64, every executor with the same
 * bits, and what the partial sums take. Numbers are positive, where a chain of f32 additions loses
 * most. */
#include "tc.h"

#include "tc_test.h"
#include "same.h"

#include <math.h>

enum { MOST = 1300000, RESULTS = 2048 };

typedef tc_tensor (*expression)(tc_tensor x, tc_tensor y);

/* ---- sums: of flat inputs ---- */

static tc_tensor dot(tc_tensor x, tc_tensor y)
{
    return tc_matmul(x, y);
}
static tc_tensor row_by_column(tc_tensor x, tc_tensor y)
{
    return tc_matmul(tc_reshape(x, 1, -1), tc_reshape(y, -1, 1));
}
static tc_tensor inner(tc_tensor x, tc_tensor y)
{
    x = tc_reshape(x, 300, -1);
    return tc_einsum("ij,ij->", TC_TENSORS(x, tc_reshape(y, 300, -1)));
}
static tc_tensor inner_rows(tc_tensor x, tc_tensor y)
{
    x = tc_reshape(x, 5, 7, -1);
    return tc_einsum("bij,bij->bi", TC_TENSORS(x, tc_reshape(y, 5, 7, -1)));
}
static tc_tensor by_vector(tc_tensor x, tc_tensor y)
{
    x = tc_reshape(x, 11, -1);
    return tc_matmul(x, tc_slice(y, 0, 0, tc_size(x, 1), 1));
}
static tc_tensor of_vector(tc_tensor x, tc_tensor y)
{
    y = tc_reshape(y, -1, 17);
    return tc_matmul(tc_slice(x, 0, 0, tc_size(y, 0), 1), y);
}
static tc_tensor of_vector_wide(tc_tensor x, tc_tensor y)
{
    y = tc_reshape(y, -1, 640);
    return tc_matmul(tc_slice(x, 0, 0, tc_size(y, 0), 1), y);
}
static tc_tensor product(tc_tensor x, tc_tensor y)
{
    return tc_matmul(tc_reshape(x, 20, -1), tc_reshape(y, -1, 20));
}
static tc_tensor turned(tc_tensor x, tc_tensor y)
{
    return tc_matmul(tc_transpose(tc_reshape(x, -1, 20), 0, 1), tc_reshape(y, -1, 20));
}
static tc_tensor two_axes(tc_tensor x, tc_tensor y)
{
    x = tc_reshape(x, 70, -1, 16);
    return tc_einsum("bim,bin->mn", TC_TENSORS(x, tc_reshape(y, 70, -1, 16)));
}
static tc_tensor two_long_axes(tc_tensor x, tc_tensor y)
{
    x = tc_reshape(x, 3, -1, 16);
    return tc_einsum("bim,bin->mn", TC_TENSORS(x, tc_reshape(y, 3, -1, 16)));
}
static tc_tensor computed(tc_tensor x, tc_tensor y)
{
    return tc_relu(tc_add(product(tc_mul(x, 0.5), tc_add(y, 0.25)), 1));
}
/* Of a 3x3 convolution of images [n, 2, 32, 32]. */
static tc_tensor weight_gradient(tc_tensor x, tc_tensor y)
{
    x = tc_reshape(x, -1, 2, 32, 32);
    y = tc_reshape(y, -1, 2, 32, 32);
    tc_tensor w = tc_reshape(tc_slice(tc_reshape(y, -1), 0, 0, 36, 1), 2, 2, 3, 3), dw;
    tc_tensor z = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
    tc_grad(tc_sum(tc_mul(z, y), TC_ALL, false), &w, 1, &dw);
    return dw;
}

/* Of running sums every 1021st. */
static tc_tensor running(tc_tensor x, tc_tensor y)
{
    return tc_slice(tc_cumsum(tc_mul(x, y), 0), 0, 1020, TC_END, 1021);
}
static tc_tensor running_rows(tc_tensor x, tc_tensor y)
{
    x = tc_cumsum(tc_mul(tc_reshape(x, 3, -1), tc_reshape(y, 3, -1)), 1);
    return tc_slice(x, 1, 1020, TC_END, 1021);
}
static tc_tensor running_columns(tc_tensor x, tc_tensor y)
{
    x = tc_cumsum(tc_add(tc_reshape(x, -1, 3), tc_reshape(y, -1, 3)), 0);
    return tc_slice(x, 0, 1020, TC_END, 1021);
}

static tc_tensor running_back(tc_tensor x, tc_tensor y)
{
    tc_tensor back, z = tc_cumsum(tc_reshape(x, 2, -1), 1);
    z = tc_mul(z, tc_reshape(y, 2, -1));
    tc_grad(tc_sum(z, TC_ALL, false), &x, 1, &back);
    return tc_slice(back, 0, 1020, TC_END, 1021);
}

static const struct {
    const char *name;
    expression make;
    int n;
    tc_dtype dtype;
    bool parts;
} sums[] = {
    {"dot", dot, 1 << 20, TC_F32, true},
    {"row by column", row_by_column, 300, TC_F32, true},
    {"dot of a prime length", dot, 1000003, TC_F32, true},
    {"dot just long enough", dot, 257, TC_F32, true},
    {"dot just too short", dot, 256, TC_F32, false},
    {"dot of f16", dot, 100000, TC_F16, true},
    {"dot of bf16", dot, 99991, TC_BF16, true},
    {"ij,ij->", inner, 333300, TC_F32, true},
    {"bij,bij->bi", inner_rows, 35 * 5003, TC_F32, true},
    {"matrix by vector", by_vector, 11 * 30000, TC_F32, true},
    {"vector by matrix", of_vector, 17 * 30000, TC_F32, true},
    {"product", product, 20 * 60000, TC_F32, true},
    {"product of a prime length", product, 20 * 60013, TC_F32, true},
    {"product, turned", turned, 20 * 60000, TC_F32, true},
    {"product of f16", product, 20 * 4000, TC_F16, true},
    {"product of bf16", product, 20 * 4001, TC_BF16, true},
    {"product of computed operands", computed, 20 * 30000, TC_F32, true},
    {"product, short", product, 20 * 512, TC_F32, false},
    {"product, just long enough", product, 20 * 513, TC_F32, true},
    {"vector by wide matrix", of_vector_wide, 640 * 2000, TC_F32, true},
    {"two axes", two_axes, 16 * 70 * 901, TC_F32, true},
    {"two axes, a long one inside", two_long_axes, 16 * 3 * 20011, TC_F32, true},
    {"running sum", running, 1 << 20, TC_F32, true},
    {"running sum of a prime length", running, 1000003, TC_F32, false},
    {"running sum of f16", running, 65536, TC_F16, true},
    {"running sum, short", running, 65535, TC_BF16, false},
    {"running sums of rows", running_rows, 3 * 70000, TC_F32, true},
    {"running sums of columns", running_columns, 3 * 66000, TC_F32, true},
    {"gradient of running sums", running_back, 2 * 90000, TC_F32, true},
    {"gradient of a weight", weight_gradient, 64 * 2048, TC_F32, true},
};

enum { SUMS = sizeof(sums) / sizeof(sums[0]) };

/* ---- executors ---- */

static const struct {
    const char *backend;
    int vector_bits, threads;
} executors[] = {{"interp", 0, 1}, {"cpu", 0, 3}, {"cpu", 0, 1}, {"cpu", 256, 2}, {"cpu", -1, 1}};

enum { EXECUTORS = sizeof(executors) / sizeof(executors[0]) };

static char explained[8192];

static void explain(tc_program *f)
{
    FILE *text = tmpfile();
    memset(explained, 0, sizeof(explained));
    REQUIRE(text != NULL);
    CHECK_EQ_INT(tc_explain_as(f, text, &(tc_explain_options){.all = true}), TC_OK);
    rewind(text);
    explained[fread(explained, 1, sizeof(explained) - 1, text)] = 0;
    fclose(text);
}

/* Sum number i as executor e gives it, of inputs cast to the sum's dtype and then to `in`; the
 * number of results, -1: there is no compiler. */
static int64_t run(int i, int e, tc_dtype in, float *x, float *y, double *results)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_options o = {.backend = executors[e].backend,
                    .vector_bits = executors[e].vector_bits,
                    .threads = executors[e].threads,
                    .verify = true,
                    .matrix = -1};
    o.fallback = e ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor a = tc_input(ctx, "x", TC_F32, sums[i].n), b = tc_input(ctx, "y", TC_F32, sums[i].n);
    tc_tensor z = sums[i].make(tc_cast(tc_cast(a, sums[i].dtype), in),
                               tc_cast(tc_cast(b, sums[i].dtype), in));
    int64_t n = tc_count(z);
    tc_status status = tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(tc_cast(z, TC_F64)), NULL, &f);
    if (status == TC_ERR_COMPILER) {
        tc_ctx_free(ctx);
        return -1;
    }
    CHECK_MSG(!status, "%s: %s", sums[i].name, tc_error(ctx));
    REQUIRE(!status && n <= RESULTS);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, sums[i].n), TC_BUF(y, sums[i].n)),
                        TC_BUFS(TC_BUF(results, n))),
                 TC_OK);
    explain(f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return n;
}

static void fill(float *x, uint32_t state)
{
    for (int i = 0; i < MOST; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 16777216.0f;
    }
}

/* A rounding to the dtype of the result, and some of f32: a chain of a thousand makes up to 40. */
static double bound_of(int i)
{
    tc_dtype t = sums[i].dtype;
    double last = t == TC_BF16 ? 0x1p-8 : t == TC_F16 ? 0x1p-11 : 0x1p-24;
    return last + (sums[i].parts ? 15 : 40) * 0x1p-24;
}

TEST(long_sums_keep_their_digits)
{
    float *x = malloc(MOST * sizeof(*x)), *y = malloc(MOST * sizeof(*y));
    static double exact[RESULTS], got[RESULTS];
    fill(x, 1);
    fill(y, 2);
    for (int i = 0; i < SUMS; i++) {
        double worst = 0;
        int64_t n = run(i, 0, TC_F64, x, y, exact);
        CHECK_EQ_INT(run(i, 0, sums[i].dtype, x, y, got), n);
        for (int64_t j = 0; j < n; j++) {
            worst = fmax(worst, fabs(got[j] - exact[j]) / exact[j]);
        }
        CHECK_MSG(worst <= bound_of(i), "%s: an error of %.2e", sums[i].name, worst);
        bool parts = strstr(explained, "SPLIT(") || strstr(explained, "LANES(") ||
                     strstr(explained, " parts of ");
        CHECK_MSG(parts == sums[i].parts, "%s:\n%s", sums[i].name, explained);
    }
    free(x);
    free(y);
}

TEST(long_sums_are_the_same_everywhere)
{
    float *x = malloc(MOST * sizeof(*x)), *y = malloc(MOST * sizeof(*y));
    static double want[RESULTS], got[RESULTS];
    int without = 0;
    fill(x, 3);
    fill(y, 4);
    for (int i = 0; i < SUMS && !without; i++) {
        int64_t n = run(i, 0, sums[i].dtype, x, y, want);
        for (int e = 1; e < EXECUTORS && !without; e++) {
            without = run(i, e, sums[i].dtype, x, y, got) < 0;
            CHECK_MSG(without || same_bits(TC_F64, want, got, n),
                      "%s: other bits of %d bits, %d threads", sums[i].name,
                      executors[e].vector_bits, executors[e].threads);
        }
    }
    free(x);
    free(y);
    if (without) {
        SKIP("no C compiler here: the interpreter only");
    }
}

/* ---- cost ---- */

static tc_program_info plan_product(int m, int k, int n)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = true};
    tc_program_info info;
    tc_program *f = NULL;
    tc_ctx *ctx;
    memset(&info, 0, sizeof(info));
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, m, k), y = tc_input(ctx, "y", TC_F32, k, n);
    REQUIRE(tc_compile_fn(TC_TENSORS(x, y), TC_TENSORS(tc_matmul(x, y)), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info;
}

/* Partial sums: no more bytes than the operands, and few where an element is read a few times; a
 * product without a very long sum is one kernel. */
TEST(partial_sums_are_few)
{
    static const int sizes[][3] = {{4096, 16384, 4096}, {8192, 8192, 8192}, {16384, 65536, 8192},
                                   {64, 1000000, 64},   {512, 5003, 512},   {16, 100003, 16},
                                   {1, 1000003, 1},     {100, 100000, 1},   {1, 100000, 100}};
    for (int i = 0; i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++) {
        double m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
        double operands = 4 * (m * k + k * n), flops = 2 * m * k * n;
        tc_program_info info = plan_product(sizes[i][0], sizes[i][1], sizes[i][2]);
        double extra = (double)info.arena_bytes, rest = 4 * m * n;
        CHECK_MSG(extra <= operands + rest, "%g x %g x %g: %g bytes of parts, %g of operands", m, k,
                  n, extra, operands);
        CHECK_MSG(extra <= operands / 32 + rest || extra <= flops / 1024 + rest,
                  "%g x %g x %g: %g bytes of parts", m, k, n, extra);
    }
    CHECK_EQ_INT(plan_product(2048, 2048, 2048).n_steps, 1);
    CHECK_EQ_INT(plan_product(512, 3000, 768).n_steps, 1);
}

/* The largest relative error of the variances over some axes of numbers around `mean`, by the two
 * passes of doubles; -1: there is no compiler. */
static double variance_error(const tc_options *o, const int64_t *sizes, uint64_t over, double mean)
{
    enum { NUMBERS = 1000003, MOST_RESULTS = 64 };
    static float x[NUMBERS], got[MOST_RESULTS];
    double sum[MOST_RESULTS] = {0}, squares[MOST_RESULTS] = {0}, worst = 0;
    int64_t list[5] = {TC_F32, sizes[0], sizes[1], sizes[2], sizes[3]}, n = 1, results = 1;
    int axes[4], n_axes = 0;
    for (int i = 0; i < 4; i++) {
        n *= sizes[i];
        results *= over >> i & 1 ? 1 : sizes[i];
        axes[n_axes] = i;
        n_axes += over >> i & 1;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t noise = (i * 7919) % 2003 + (i * 104729) % 1009;
        x[i] = (float)(mean + (double)(noise - 1505) / 500);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i, at = 0, stride = 1;
            for (int a = 3; a >= 0; a--) {
                at += over >> a & 1 ? 0 : rest % sizes[a] * stride;
                stride *= over >> a & 1 ? 1 : sizes[a];
                rest /= sizes[a];
            }
            double off = (double)x[i] - sum[at] * (double)results / (double)n;
            *(pass ? &squares[at] : &sum[at]) += pass ? off * off : (double)x[i];
        }
    }
    tc_ctx *c = NULL;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&c, o) == TC_OK);
    tc_tensor in = tc_input_at(c, "x", 5, list, TC_HERE);
    bool works = !tc_compile(tc_var(in, TC_AXES_N(axes, n_axes), 0, false), &f) &&
                 !tc_run(f, TC_BUFS(TC_BUF(x, n)), TC_BUFS(TC_BUF(got, results)));
    for (int64_t i = 0; i < results && works; i++) {
        double want = squares[i] * (double)results / (double)n;
        worst = fmax(worst, fabs(got[i] - want) / want);
    }
    tc_program_free(f);
    tc_ctx_free(c);
    return works ? worst : -1;
}

/* However far the mean is from 0: numbers with these last digits are given, the rest is exact. */
TEST(variance_of_numbers_far_from_0)
{
    static const tc_options ways[] = {{.backend = "interp"},
                                      {.backend = "interp", .reproducible = true},
                                      {.backend = "cpu", .fallback = TC_FALLBACK_REFUSE}};
    static const struct {
        int64_t sizes[4];
        uint64_t over;
    } cases[] = {
        {{1000, 1, 1, 1}, 1},    {{16, 4, 10, 10}, 1 | 4 | 8}, {{1, 1, 1, 1000000}, 8},
        {{1, 1, 1, 1000003}, 8}, {{1, 300, 1, 40}, 2},         {{1, 1, 100003, 5}, 4},
        {{8, 3, 7, 7}, 4 | 8},
    };
    for (int w = 0; w < 3; w++) {
        for (int i = 0; i < (int)(sizeof(cases) / sizeof(cases[0])); i++) {
            for (double mean = 1e4; mean < 2e6; mean *= 100) {
                double error = variance_error(&ways[w], cases[i].sizes, cases[i].over, mean);
                /* columns are chains of so many sums where results are reproducible */
                double most = ways[w].reproducible && cases[i].sizes[2] > 100000 ? 1e-3 : 2e-6;
                CHECK_MSG(error < most, "way %d, case %d, mean %g: an error of %.2e", w, i, mean,
                          error);
            }
        }
    }
}

/* One pass, and no worse than two where the mean is a thousand times the deviation. */
TEST(variance)
{
    enum { N = 100003 };
    static float x[N];
    double mean = 0, want = 0;
    for (int i = 0; i < N; i++) {
        x[i] = 1000.0f + (float)((i * 7919LL) % 2003 - 1001) / 1001.0f;
        mean += (double)x[i] / N;
    }
    for (int i = 0; i < N; i++) {
        want += ((double)x[i] - mean) * ((double)x[i] - mean) / N;
    }
    for (int native = 0; native < 2; native++) {
        tc_options o = {0};
        o.backend = native ? NULL : "interp";
        tc_ctx *c = NULL;
        REQUIRE(tc_ctx_make(&c, &o) == TC_OK);
        float var[3] = {0};
        tc_tensor line = tc_borrow(c, x, TC_F32, N), column = tc_reshape(line, N, 1);
        CHECK_EQ_INT(tc_read(tc_var(line, TC_ALL, 0, false), var, 1), TC_OK);
        CHECK_EQ_INT(tc_read(tc_var(tc_expand(column, N, 2), TC_AXES(0), 0, false), var + 1, 2),
                     TC_OK);
        for (int i = 0; i < 3; i++) {
            CHECK_MSG(fabs(var[i] - want) < 1e-6 * want, "%s %d: %.9g, expected %.9g",
                      native ? "native" : "interp", i, var[i], want);
        }
        tc_ctx_free(c);
    }
}

TEST_MAIN
