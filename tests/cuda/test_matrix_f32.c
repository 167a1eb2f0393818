/* tests/cuda/test_matrix_f32.c - f32 on matrix units where math may be fast: TF32, and three
 * products of bf16 parts. Run by the model (model.h), compared with sums in f64. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "matrix_context.h"

/* ---- f32 where math may be fast ---- */

enum { FAST_SIDE = 512, FAST_N = FAST_SIDE * FAST_SIDE, FAST_FILTER = 64 * 64 * 9 };
typedef enum fast_kind { FAST_PRODUCT, FAST_CONV, FAST_FILTER_GRADIENT, FAST_KINDS } fast_kind;

/* Elements of the second factor, of the result. */
static int64_t fast_second(fast_kind kind)
{
    return kind == FAST_CONV ? FAST_FILTER : FAST_N;
}

static int64_t fast_results(fast_kind kind)
{
    return kind == FAST_FILTER_GRADIENT ? FAST_FILTER : FAST_N;
}

/* a b of f32, or a 3x3 convolution of an image a by filters b, or the gradient of one to its
 * filters where b is the gradient to its result; what tc_explain says. */
static void fast_product(tc_math math, fast_kind kind, const float *a, const float *b, float *out,
                         char *text, size_t n_text)
{
    tc_ctx *ctx = open_context("emulated", 0);
    tc_options o;
    tc_program *f = NULL;
    REQUIRE(ctx);
    memset(&o, 0, sizeof(o));
    o.math = math;
    bool image = kind != FAST_PRODUCT;
    tc_tensor x = image ? tc_input(ctx, "x", TC_F32, 4, 64, 32, 32)
                        : tc_input(ctx, "a", TC_F32, FAST_SIDE, FAST_SIDE);
    tc_tensor w = image ? tc_input(ctx, "w", TC_F32, 64, 64, 3, 3)
                        : tc_input(ctx, "b", TC_F32, FAST_SIDE, FAST_SIDE);
    tc_tensor up = tc_input(ctx, "up", TC_F32, 4, 64, 32, 32);
    tc_conv how = {.padding = {1, 1}};
    tc_tensor y = image ? tc_conv2d(x, w, TC_NONE, &how) : tc_matmul(x, w);
    if (kind == FAST_FILTER_GRADIENT) {
        REQUIRE(!tc_grad(tc_sum(tc_mul(y, up), TC_ALL, false), &w, 1, &y));
        w = up;
    }
    tc_status status = tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y), &o, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        snprintf(text, n_text, "%s", explained(f));
        status = tc_run(f, TC_BUFS(TC_BUF(a, FAST_N), TC_BUF(b, fast_second(kind))),
                        TC_BUFS(TC_BUF(out, fast_results(kind))));
        CHECK_MSG(status == TC_OK, "%s, %s", tc_error(f), emu_why);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Element (image, channel, y, x) of [4, 64, 32, 32]; 0 in its padding. */
static double fast_pixel(const float *a, int64_t image, int64_t channel, int64_t y, int64_t x)
{
    bool inside = y >= 0 && y < 32 && x >= 0 && x < 32;
    return inside ? (double)a[((image * 64 + channel) * 32 + y) * 32 + x] : 0;
}

/* Product k of result i. */
static double fast_term(fast_kind kind, const float *a, const float *b, int64_t i, int64_t k)
{
    if (kind == FAST_PRODUCT) {
        return (double)a[i / FAST_SIDE * FAST_SIDE + k] * (double)b[k * FAST_SIDE + i % FAST_SIDE];
    }
    if (kind == FAST_CONV) {
        return fast_pixel(a, i / 65536, k / 9, i / 32 % 32 + k / 3 % 3 - 1, i % 32 + k % 3 - 1) *
               (double)b[i / 1024 % 64 * 64 * 9 + k];
    }
    int64_t y = k / 32 % 32, x = k % 32;
    return fast_pixel(a, k / 1024, i / 9 % 64, y + i / 3 % 3 - 1, x + i % 3 - 1) *
           fast_pixel(b, k / 1024, i / 576, y, x);
}

/* Result i, and the sum of |a b|. */
static double fast_want(fast_kind kind, const float *a, const float *b, int64_t i, double *size)
{
    static const int64_t products[] = {FAST_SIDE, 64 * 9, 4 * 1024};
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < products[kind]; k++) {
        double term = fast_term(kind, a, b, i, k);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* Words of tc_explain for each kind: filters' gradients are summed along pixels, in a layout
 * that no unit reads in f32. */
static const char *const fast_says[] = {"class TF32", "class TF32", "of bf16 halves"};

/* And how far off a result may be, in sums of |a b|. */
static const double fast_bound[] = {0x1p-10, 0x1p-10, 0x1p-15};

TEST(fast_math_rounds_f32_or_makes_it_of_halves)
{
    static float a[FAST_N], b[FAST_N], out[FAST_N];
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < FAST_N; i++) {
        a[i] = (float)next_value();
        b[i] = (float)next_value();
    }
    for (int kind = 0; kind < FAST_KINDS; kind++) {
        char text[6000] = "";
        int64_t wrong = 0;
        fast_product(TC_MATH_FAST, (fast_kind)kind, a, b, out, text, sizeof(text));
        CHECK_MSG(strstr(text, fast_says[kind]) && strstr(text, "matrix unit"), "%s", text);
        for (int64_t i = 0; i < fast_results((fast_kind)kind); i += 37) {
            double size, want = fast_want((fast_kind)kind, a, b, i, &size);
            wrong += !(fabs((double)out[i] - want) <= size * (fast_bound[kind] + 0x1p-16));
        }
        CHECK_EQ_INT(wrong, 0);
    }
    char text[4000] = "";
    fast_product(TC_MATH_EXACT, FAST_PRODUCT, a, b, out, text, sizeof(text));
    CHECK_MSG(!strstr(text, "halves") && !strstr(text, "TF32"), "%s", text);
}

/* C[batch][m][n] = A B of f32, as product_case; copies: operands that are not contiguous along k,
 * or in rows that no unit reads; exact: no unit makes it. */
typedef struct single_case {
    int batch, m, n, k;
    bool a_turned, b_turned, exact;
    int copies;
} single_case;

static const single_case single_cases[] = {
    {.batch = 1, .m = 128, .n = 128, .k = 64, .b_turned = true},
    {.batch = 1, .m = 127, .n = 129, .k = 68, .b_turned = true},
    {.batch = 1, .m = 257, .n = 65, .k = 132, .b_turned = true},
    {.batch = 1, .m = 191, .n = 1000, .k = 200, .b_turned = true},
    {.batch = 3, .m = 130, .n = 72, .k = 44, .b_turned = true},
    {.batch = 1, .m = 512, .n = 512, .k = 512, .copies = 1},
    {.batch = 1, .m = 509, .n = 523, .k = 521, .b_turned = true, .copies = 2}, /* odd rows */
    {.batch = 1, .m = 384, .n = 640, .k = 548, .a_turned = true, .copies = 2},
    {.batch = 1, .m = 640, .n = 384, .k = 552, .a_turned = true, .b_turned = true, .copies = 1},
    {.batch = 1, .m = 31, .n = 512, .k = 512, .b_turned = true, .exact = true}, /* few rows */
    {.batch = 1, .m = 128, .n = 128, .k = 64, .exact = true}, /* too small for a copy */
};

/* x with ten bits behind the first one. */
static double single_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&x, &bits, sizeof(bits));
    return (double)x;
}

/* Element i of the result, of rounded factors unless it is exact, and how far off it may be. */
static double single_want(const single_case *c, const float *a, const float *b, int64_t i,
                          double *slack)
{
    int64_t batch = i / ((int64_t)c->m * c->n), row = i / c->n % c->m, column = i % c->n;
    double sum = 0, size = 0;
    a += batch * c->m * c->k;
    b += batch * c->k * c->n;
    for (int64_t k = 0; k < c->k; k++) {
        float x = c->a_turned ? a[k * c->m + row] : a[row * c->k + k];
        float y = c->b_turned ? b[column * c->k + k] : b[k * c->n + column];
        double term = c->exact ? (double)x * (double)y : single_round(x) * single_round(y);
        sum += term;
        size += fabs(term);
    }
    *slack = size * (2 * ((c->k + 7) / 8) + 32) * 0x1p-23;
    return sum;
}

static tc_status single_compile(tc_ctx *ctx, const single_case *c, tc_program **f)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.math = TC_MATH_FAST;
    tc_tensor in[2] = {c->a_turned ? tc_input(ctx, "a", TC_F32, c->batch, c->k, c->m)
                                   : tc_input(ctx, "a", TC_F32, c->batch, c->m, c->k),
                       c->b_turned ? tc_input(ctx, "b", TC_F32, c->batch, c->n, c->k)
                                   : tc_input(ctx, "b", TC_F32, c->batch, c->k, c->n)};
    tc_tensor y = tc_matmul(c->a_turned ? tc_transpose(in[0], -1, -2) : in[0],
                            c->b_turned ? tc_transpose(in[1], -1, -2) : in[1]);
    return tc_compile_fn((tc_tensors){in, 2}, TC_TENSORS(y), &o, f);
}

static void check_single(const single_case *c, int number)
{
    int64_t n[3] = {(int64_t)c->batch * c->m * c->k, (int64_t)c->batch * c->n * c->k,
                    (int64_t)c->batch * c->m * c->n};
    float *data[3];
    tc_program *f = NULL;
    tc_program_info info;
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    for (int i = 0; i < 3; i++) {
        data[i] = (float *)malloc((size_t)n[i] * sizeof(float));
        for (int64_t j = 0; j < n[i]; j++) {
            data[i][j] = (float)next_value();
        }
    }
    tc_status status = single_compile(ctx, c, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        bool rounds = strstr(explained(f), "class TF32") != NULL;
        tc_program_get_info(f, &info);
        bool alone = c->exact || info.n_kernels == 1 + c->copies; /* exact ones may be in parts */
        CHECK_MSG(rounds == !c->exact && alone, "case %d:\n%s", number, explained(f));
        status = tc_run(f, TC_BUFS(TC_BUF(data[0], n[0]), TC_BUF(data[1], n[1])),
                        TC_BUFS(TC_BUF(data[2], n[2])));
        CHECK_MSG(status == TC_OK, "%s, %s", tc_error(f), emu_why);
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < n[2]; i += n[2] > 10000 ? 13 : 1) {
        double slack, want = single_want(c, data[0], data[1], i, &slack);
        wrong += !(fabs((double)data[2][i] - want) <= slack);
    }
    CHECK_MSG(wrong == 0, "case %d: %d of %d wrong", number, (int)wrong, (int)n[2]);
    for (int i = 0; i < 3; i++) {
        free(data[i]);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(f32_is_rounded_for_products_along_k)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < (int)(sizeof(single_cases) / sizeof(single_cases[0])); i++) {
        check_single(&single_cases[i], i);
    }
}

TEST(nvrtc_takes_products_of_f32)
{
    const char *why = "";
    tc_program *f = NULL;
    if (!tci_nvrtc_get(&why) || !can_emulate()) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    tc_shutdown();
    CHECK_EQ_INT(single_compile(ctx, &single_cases[3], &f), TC_OK);
    check_by_nvrtc(f);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
