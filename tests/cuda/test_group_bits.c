/* tests/cuda/test_group_bits.c - a value has the same bits in any company on the emulated CUDA
 * dialect: alone in its program, next to other reductions, and with a kernel for each op.
 * The same on a device, if there is one. A table of kinds of reductions; fuzz/test_block_bits.c
 * draws random programs, which are planned only. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"
#include "same.h"

#include "emulate.h"

/* A value of x and w, and others that want kernels with it. */
typedef struct company {
    const char *name;
    tc_tensor (*value)(tc_tensor x, tc_tensor w), (*others)(tc_tensor x, tc_tensor w);
    int64_t x[4], w[4]; /* 0: no further axes */
    tc_dtype dtype;
} company;

static tc_tensor gradient(tc_tensor y, tc_tensor of)
{
    tc_tensor g = TC_NONE;
    tc_grad(tc_sum(tc_cast(tc_mul(y, tc_sin(y)), TC_F32), TC_ALL, false), &of, 1, &g);
    return g;
}

static tc_tensor row_sums(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_sum(x, TC_AXES(1), false);
}

static tc_tensor column_sums(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_sum(x, TC_AXES(0), false);
}

static tc_tensor chain_sums(tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_exp(tc_tanh(tc_mul(x, w))), TC_AXES(1), false);
}

static tc_tensor places(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_argmax(x, 1, false);
}

static tc_tensor softmax(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_softmax(x, 1);
}

static tc_tensor wide_sums(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_sum(tc_cast(x, TC_F64), TC_AXES(1), false);
}

static tc_tensor layer_norm(tc_tensor x, tc_tensor w)
{
    return tc_layer_norm(x, TC_AXES(1), w, TC_NONE, 1e-5);
}

static tc_tensor layer_norm_gradient(tc_tensor x, tc_tensor w)
{
    return gradient(layer_norm(x, w), x);
}

static tc_tensor short_rows(tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(tc_slice(x, 1, 0, 100, 1), tc_slice(w, 0, 0, 100, 1)), TC_AXES(1), false);
}

static tc_tensor statistics(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_var(x, TC_AXES(0, 2, 3), 0, false);
}

static tc_tensor batch_norm(tc_tensor x, tc_tensor w)
{
    return tc_batch_norm(x, TC_NONE, TC_NONE, w, TC_NONE, true, 1e-5);
}

static tc_tensor group_norm(tc_tensor x, tc_tensor w)
{
    return tc_group_norm(x, 2, w, TC_NONE, 1e-5);
}

static tc_tensor pooled(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_mean(x, TC_AXES(2, 3), false);
}

static tc_tensor product(tc_tensor x, tc_tensor w)
{
    return tc_matmul(x, w);
}

static tc_tensor changed_product(tc_tensor x, tc_tensor w)
{
    return tc_relu(tc_matmul(tc_mul(x, 0.5), w));
}

static tc_tensor running(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_cumsum(x, 1);
}

static tc_tensor widened_product(tc_tensor x, tc_tensor w)
{
    return tc_matmul(tc_cast(x, TC_F32), tc_cast(w, TC_F32));
}

static tc_tensor row_softmax_of_product(tc_tensor x, tc_tensor w)
{
    return tc_softmax(tc_matmul(tc_relu(x), w), 1);
}

static tc_tensor weights(tc_tensor x, tc_tensor w)
{
    return tc_softmax(tc_mul(tc_matmul(x, tc_transpose(w, 2, 3)), 0.125), 3);
}

static tc_tensor attention(tc_tensor x, tc_tensor w)
{
    return tc_matmul(weights(x, w), w);
}

static tc_tensor convolution(tc_tensor x, tc_tensor w)
{
    return tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
}

static tc_tensor convolution_statistics(tc_tensor x, tc_tensor w)
{
    return tc_mean(tc_relu(convolution(x, w)), TC_AXES(0, 2, 3), false);
}

/* Pools, each row of them reads two of the image, of one column more. */
static tc_tensor pooled_convolution(tc_tensor x, tc_tensor w)
{
    const tc_pool pool = {.kernel = {2, 2}, .stride = {2, 1}};
    return tc_tanh(tc_max_pool2d(tc_pad(convolution(x, w), 3, 0, 2, 0), &pool));
}

static tc_tensor filter_gradient(tc_tensor x, tc_tensor w)
{
    return gradient(pooled_convolution(x, w), w);
}

static tc_tensor image_gradient(tc_tensor x, tc_tensor w)
{
    return gradient(pooled_convolution(x, w), x);
}

static tc_tensor turned(tc_tensor x, tc_tensor w)
{
    (void)w;
    return tc_transpose(tc_tanh(x), 0, 1);
}

static tc_tensor turned_product(tc_tensor x, tc_tensor w)
{
    return tc_matmul(turned(x, w), w);
}

static const company companies[] = {
    {"row sums", row_sums, places, {7, 1100}, {1100}, TC_F32},
    {"sums of short rows", short_rows, softmax, {7, 1100}, {1100}, TC_F32},
    {"row sums of bf16", row_sums, wide_sums, {5, 300}, {300}, TC_BF16},
    {"sums behind pointwise ops", chain_sums, layer_norm, {6, 700}, {700}, TC_F32},
    {"column sums", column_sums, row_sums, {60, 33}, {33}, TC_F32},
    {"softmax", softmax, wide_sums, {5, 1500}, {1500}, TC_F32},
    {"softmax and places", softmax, places, {9, 65}, {65}, TC_BF16},
    {"layer norm", layer_norm, wide_sums, {6, 768}, {768}, TC_F32},
    {"gradient of layer norm", layer_norm_gradient, short_rows, {6, 768}, {768}, TC_F32},
    {"statistics of channels", statistics, pooled, {4, 6, 9, 9}, {6}, TC_F32},
    {"batch norm", batch_norm, pooled, {4, 6, 9, 9}, {6}, TC_F32},
    {"group norm", group_norm, statistics, {4, 6, 7, 7}, {6}, TC_F32},
    {"running sums", running, row_sums, {3, 900}, {900}, TC_F32},
    {"product", product, changed_product, {9, 600}, {600, 10}, TC_F32},
    {"product of a unit", product, row_softmax_of_product, {64, 128}, {128, 256}, TC_BF16},
    {"widened product of a unit", widened_product, product, {64, 128}, {128, 256}, TC_BF16},
    {"changed product of a unit", changed_product, product, {96, 64}, {64, 192}, TC_F32},
    {"attention", attention, weights, {1, 2, 64, 32}, {1, 2, 96, 32}, TC_BF16},
    {"attention of f32", attention, weights, {2, 1, 40, 16}, {2, 1, 64, 16}, TC_F32},
    {"convolution", convolution, convolution_statistics, {2, 16, 12, 12}, {32, 16, 3, 3}, TC_BF16},
    {"filters below a pool",
     filter_gradient,
     image_gradient,
     {1, 64, 16, 16},
     {32, 64, 3, 3},
     TC_BF16},
    {"product of an output", turned_product, turned, {100, 256}, {100, 128}, TC_BF16},
    {"parts of a long product of halves", product, column_sums, {64, 4096}, {4096, 64}, TC_BF16},
    {"parts of a long product", product, column_sums, {4, 5000}, {5000, 4}, TC_F32},
};
enum { COMPANIES = sizeof(companies) / sizeof(companies[0]) };

/* ---- runs ---- */

static tc_tensor input_of(tc_ctx *ctx, const char *name, const int64_t *sizes, tc_dtype t)
{
    int64_t words[5] = {t};
    int rank = 0;
    while (rank < 4 && sizes[rank]) {
        words[rank + 1] = sizes[rank];
        rank++;
    }
    return tc_input_at(ctx, name, rank + 1, words, TC_HERE);
}

static void *numbers_of(tc_tensor x, unsigned seed)
{
    int64_t n = tc_count(x);
    void *data = calloc((size_t)n, 4);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float number = (float)(seed >> 8) * 0x1p-23f - 1;
        uint32_t bits;
        memcpy(&bits, &number, sizeof(bits));
        if (tc_dtype_of(x) == TC_F32) {
            ((float *)data)[i] = number;
        } else {
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        }
    }
    return data;
}

/* The value, heap; with others where `both`. */
static void *run(const company *c, const char *backend, int fusion, bool both, int64_t *n,
                 tc_dtype *t)
{
    tc_options o = {.backend = backend,
                    .fallback = TC_FALLBACK_REFUSE,
                    .fusion = fusion,
                    .verify = true,
                    .no_disk_cache = true};
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor in[2] = {input_of(ctx, "x", c->x, c->dtype), input_of(ctx, "w", c->w, c->dtype)};
    tc_tensor out[2] = {c->value(in[0], in[1]), TC_NONE};
    out[1] = both ? c->others(in[0], in[1]) : TC_NONE;
    tc_status status = tc_compile_fn(TC_TENSORS_N(in, 2), TC_TENSORS_N(out, 1 + both), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(ctx));
    void *data[2] = {numbers_of(in[0], 1), numbers_of(in[1], 2)}, *got[2] = {NULL, NULL};
    tc_buf from[2], to[2];
    for (int i = 0; i < 2 && f; i++) {
        from[i] = (tc_buf){.data = data[i], .n = tc_count(in[i]), .dtype = (int)c->dtype};
        if (i <= both) {
            got[i] = calloc((size_t)tc_nbytes(out[i]), 1);
            to[i] = (tc_buf){.data = got[i],
                             .n = tc_count(out[i]),
                             .dtype = (int)tc_dtype_of(out[i])};
        }
    }
    status = f ? tc_run(f, TC_BUFS_N(from, 2), TC_BUFS_N(to, 1 + both)) : status;
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, f ? tc_error(f) : "");
    *n = tc_count(out[0]);
    *t = tc_dtype_of(out[0]);
    free(data[0]);
    free(data[1]);
    free(got[1]);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return got[0];
}

static void compare_all(const char *backend)
{
    for (int i = 0; i < COMPANIES; i++) {
        const company *c = &companies[i];
        int64_t n, same_n;
        tc_dtype t, same_t;
        void *alone = run(c, backend, 0, false, &n, &t);
        void *with = run(c, backend, 0, true, &same_n, &same_t);
        void *apart = run(c, backend, -1, false, &same_n, &same_t);
        REQUIRE(alone && with && apart);
        int64_t at = same_until(t, alone, with, n);
        CHECK_MSG(at < 0, "%s: differs at %lld next to others", c->name, (long long)at);
        at = same_until(t, alone, apart, n);
        CHECK_MSG(at < 0, "%s: differs at %lld with fusion -1", c->name, (long long)at);
        free(alone);
        free(with);
        free(apart);
    }
}

TEST(bits_of_a_value_do_not_depend_on_what_shares_its_kernel)
{
    tc_backend_target target;
    if (emu_target(NULL, 0, &target) != TC_OK || !target.usable) {
        SKIP("there is no C++ compiler");
    }
    tc_register_backend(emulation());
    compare_all("emulated");
}

TEST(bits_of_a_value_on_a_device_do_not_depend_on_what_shares_its_kernel)
{
    tc_options o = {.backend = "cuda", .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_status status = tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    if (status) {
        SKIP("there is no device");
    }
    compare_all("cuda");
}

TEST_MAIN
