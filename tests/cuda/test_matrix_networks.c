/* tests/cuda/test_matrix_networks.c - matrix units in networks: gradients, convolutions by
 * boxes, and channels that stay last from one convolution to the next. Run by the model
 * (model.h). */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "matrix_context.h"

/* ---- whole networks ---- */

enum { TOKENS = 128, WIDTH = 64, HIDDEN = 128, N_GRADS = WIDTH * HIDDEN };

/* Both weights' gradients of a layer with gelu and a residual; the program's launches. */
static void gradients(const char *backend, const uint16_t *x, const uint16_t *w, float *first,
                      float *second, char *text, size_t n_text)
{
    tc_tensor grads[2], outputs[2];
    tc_program *f = NULL;
    tc_ctx *ctx = open_context(backend, 0);
    REQUIRE(ctx);
    tc_tensor in = tc_input(ctx, "x", TC_BF16, TOKENS, WIDTH);
    tc_tensor params[2] = {tc_input(ctx, "w1", TC_BF16, WIDTH, HIDDEN),
                           tc_input(ctx, "w2", TC_BF16, HIDDEN, WIDTH)};
    tc_tensor hidden = tc_gelu(tc_matmul(in, params[0]));
    tc_tensor y = tc_add(tc_matmul(hidden, params[1]), in);
    tc_tensor loss = tc_sum(tc_square(tc_cast(y, TC_F32)), TC_ALL, false);
    tc_tensor inputs[3] = {in, params[0], params[1]};
    REQUIRE(tc_grad(loss, params, 2, grads) == TC_OK);
    outputs[0] = tc_cast(grads[0], TC_F32);
    outputs[1] = tc_cast(grads[1], TC_F32);
    tc_status status = tc_compile_fn((tc_tensors){inputs, 3}, (tc_tensors){outputs, 2}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        snprintf(text, n_text, "%s", explained(f));
        CHECK_EQ_INT(tc_run(f,
                            TC_BUFS(TC_BUF((const void *)x, 2 * TOKENS * WIDTH),
                                    TC_BUF((const void *)w, 2 * N_GRADS),
                                    TC_BUF((const void *)(w + N_GRADS), 2 * N_GRADS)),
                            TC_BUFS(TC_BUF(first, N_GRADS), TC_BUF(second, N_GRADS))),
                     TC_OK);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(gradients_are_products_too)
{
    static uint16_t x[TOKENS * WIDTH], w[2 * N_GRADS];
    static float got[2][N_GRADS], want[2][N_GRADS];
    char text[4000] = "", ignored[4000];
    int products = 0;
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        x[i] = to_half(next_value(), false);
    }
    for (int i = 0; i < 2 * N_GRADS; i++) {
        w[i] = to_half(next_value() * 0.2, false);
    }
    gradients("emulated", x, w, got[0], got[1], text, sizeof(text));
    gradients("interp", x, w, want[0], want[1], ignored, sizeof(ignored));
    for (const char *at = strstr(text, "matrix unit"); at; at = strstr(at + 1, "matrix unit")) {
        products++;
    }
    CHECK_MSG(products == 5 && strstr(text, "5 launches"), "%d products:\n%s", products, text);
    for (int i = 0; i < 2; i++) {
        double off = 0, size = 0;
        for (int j = 0; j < N_GRADS; j++) {
            off += fabs((double)got[i][j] - (double)want[i][j]);
            size += fabs((double)want[i][j]);
        }
        CHECK_MSG(off <= 0.01 * size, "gradient %d: off by %g of %g", i, off, size);
    }
}

/* ---- convolutions: boxes of images ---- */

typedef struct image_case {
    int64_t images, channels, height, width, filters, kernel;
    tc_conv how;
    int boxes; /* kernels that read boxes: of the result and both gradients */
    bool half, wide;
    int copies; /* contractions over a copy of windows as a matrix */
} image_case;

static const image_case image_cases[] = {
    {2, 32, 9, 8, 64, 3, {.padding = {1, 1}}, 3, false, false},
    {2, 40, 8, 28, 72, 3, {.padding = {1, 1}}, 3, false, false},
    {3, 64, 7, 7, 40, 3, {.padding = {1, 1}}, 3, true, false},    /* 49 of 64 in a step */
    {3, 32, 28, 20, 40, 3, {.padding = {1, 1}}, 3, false, false}, /* parts of images */
    {2, 72, 12, 14, 64, 3, {.padding = {1, 1}, .stride = {2, 2}}, 3, false, false},
    {1, 64, 14, 16, 48, 5, {.padding = {2, 1}, .dilation = {1, 2}}, 3, false, true},
    {17, 32, 6, 6, 64, 1, {.padding = {0, 0}}, 0, false, false},
    {2, 48, 13, 11, 64, 2, {.padding = {0, 1}}, 3, true, true},
    {2, 128, 8, 56, 64, 3, {.padding = {1, 1}}, 3, false, false},
    {2, 72, 9, 16, 72, 3, {.padding = {1, 1}, .groups = 3}, 2, false, false}, /* 24 of 64 */
    {3, 32, 16, 24, 48, 2, {.stride = {2, 2}}, 2, false, false},              /* no overlap */
    {20, 64, 2, 2, 72, 3, {.padding = {1, 1}}, 1, false, false, 2},           /* four columns */
    {9, 72, 5, 4, 64, 3, {.padding = {1, 1}, .stride = {2, 2}}, 1, true, true, 2},
    {2, 512, 4, 4, 64, 3, {.padding = {1, 1}}, 2, false, false, 1}, /* few tiles, long K */
    {3, 3, 48, 64, 48, 4, {.stride = {4, 4}}, 0, false, false, 2},  /* patches */
};

static int64_t image_channels(const image_case *c)
{
    return c->channels / (c->how.groups ? c->how.groups : 1);
}

/* All values of the convolution and of its gradients, one behind the other; heap. */
static float *convolve(const char *backend, const image_case *c, const uint16_t *const in[3],
                       const int64_t n[3], char *text, size_t n_text, int64_t *n_out)
{
    tc_ctx *ctx = open_context(backend, 0);
    tc_dtype t = c->half ? TC_F16 : TC_BF16;
    int64_t high = 0, wide = 0;
    tc_tensor x = tc_input(ctx, "x", t, c->images, c->channels, c->height, c->width);
    tc_tensor w = tc_input(ctx, "w", t, c->filters, image_channels(c), c->kernel, c->kernel);
    tc_tensor a = c->wide ? tc_cast(x, TC_F32) : x, b = c->wide ? tc_cast(w, TC_F32) : w;
    tc_tensor y = tc_conv2d(a, b, TC_NONE, &c->how), grads[2];
    high = tc_size(y, 2);
    wide = tc_size(y, 3);
    tc_tensor g = tc_input(ctx, "g", t, c->images, c->filters, high, wide);
    tc_tensor loss = tc_sum(tc_mul(tc_cast(y, TC_F32), tc_cast(g, TC_F32)), TC_ALL, false);
    tc_tensor xw[2] = {x, w}, inputs[3] = {x, w, g}, outputs[3];
    tc_grad(loss, xw, 2, grads);
    outputs[0] = tc_cast(tc_relu(y), TC_F32);
    outputs[1] = tc_cast(grads[0], TC_F32);
    outputs[2] = tc_cast(grads[1], TC_F32);
    int64_t sizes[3] = {c->images * c->filters * high * wide, n[0], n[1]};
    *n_out = sizes[0] + sizes[1] + sizes[2];
    float *out = (float *)calloc((size_t)*n_out, sizeof(float));
    tc_program *f = NULL;
    tc_status status = tc_compile_fn((tc_tensors){inputs, 3}, (tc_tensors){outputs, 3}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(ctx));
    if (!status) {
        snprintf(text, n_text, "%s", explained(f));
        status = tc_run(f,
                        TC_BUFS(TC_BUF((const void *)in[0], 2 * n[0]),
                                TC_BUF((const void *)in[1], 2 * n[1]),
                                TC_BUF((const void *)in[2], 2 * sizes[0])),
                        TC_BUFS(TC_BUF(out, sizes[0]), TC_BUF(out + sizes[0], sizes[1]),
                                TC_BUF(out + sizes[0] + sizes[1], sizes[2])));
        CHECK_MSG(status == TC_OK, "%s: %s, %s", backend, tc_error(f), emu_why);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return out;
}

static void check_image_case(int number)
{
    const image_case *c = &image_cases[number];
    char text[20000] = "", ignored[20000];
    int64_t n[3] = {c->images * c->channels * c->height * c->width,
                    c->filters * image_channels(c) * c->kernel * c->kernel, 0};
    n[2] = c->images * c->filters * (c->height + 8) * (c->width + 8);
    uint16_t *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = (uint16_t *)malloc((size_t)n[i] * 2);
        for (int64_t j = 0; j < n[i]; j++) {
            in[i][j] = to_half(next_value(), c->half);
        }
    }
    int64_t n_out = 0;
    const uint16_t *const given[3] = {in[0], in[1], in[2]};
    float *got = convolve("emulated", c, given, n, text, sizeof(text), &n_out);
    float *want = convolve("interp", c, given, n, ignored, sizeof(ignored), &n_out);
    double size = 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < n_out; i++) {
        size += (double)want[i] * (double)want[i] / (double)n_out;
    }
    for (int64_t i = 0; i < n_out; i++) {
        double slack = fabs((double)want[i]) * 0x1p-7 + sqrt(size) * 1e-4;
        wrong += !(fabs((double)got[i] - (double)want[i]) <= slack);
    }
    int boxes = 0;
    for (const char *at = strstr(text, ", boxes"); at; at = strstr(at + 1, ", boxes")) {
        boxes++;
    }
    int copies = 0;
    for (const char *at = strstr(text, ": im2col copy"); at; at = strstr(at + 1, ": im2col copy")) {
        copies++;
    }
    CHECK_MSG(copies == c->copies, "case %d copies windows in %d contractions, expected %d:\n%s",
              number, copies, c->copies, text);
    CHECK_MSG(wrong == 0, "case %d: %d of %d wrong", number, (int)wrong, (int)n_out);
    CHECK_MSG(boxes == c->boxes, "case %d reads boxes in %d kernels, expected %d:\n%s", number,
              boxes, c->boxes, text);
    free(got);
    free(want);
    for (int i = 0; i < 3; i++) {
        free(in[i]);
    }
}

TEST(convolutions_read_boxes_of_images)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < (int)(sizeof(image_cases) / sizeof(image_cases[0])); i++) {
        check_image_case(i);
    }
}

/* ---- networks of convolutions: channels last from one to the next ---- */

/* A convolution of its own filters, and a norm's scale and shift; inputs[*n] .. are made. */
static tc_tensor conv_norm(tc_ctx *ctx, tc_tensor x, int64_t filters, int64_t kernel, tc_conv how,
                           tc_tensor *inputs, int *n)
{
    int64_t channels = tc_size(x, 1) / (how.groups ? how.groups : 1);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, filters, channels, kernel, kernel);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, filters, 1, 1);
    tc_tensor shift = tc_input(ctx, "shift", TC_BF16, filters, 1, 1);
    inputs[(*n)++] = w;
    inputs[(*n)++] = scale;
    inputs[(*n)++] = shift;
    tc_tensor y = tc_cast(tc_conv2d(x, w, TC_NONE, &how), TC_F32);
    return tc_cast(tc_add(tc_mul(y, tc_cast(scale, TC_F32)), tc_cast(shift, TC_F32)), TC_BF16);
}

enum { NETWORK_INPUTS = 32, NETWORK_OUTPUTS = 20 };

typedef struct network {
    tc_tensor inputs[NETWORK_INPUTS], outputs[NETWORK_OUTPUTS];
    int n_inputs, n_outputs;
} network;

/* Few channels, a pool, a residual block, one that projects its shortcut by steps of two, and a
 * block between whose products each channel has a filter of its own. */
static void residual_network(tc_ctx *ctx, network *m)
{
    const tc_conv same = {.padding = {1, 1}}, half = {.stride = {2, 2}, .padding = {1, 1}};
    const tc_conv first = {.stride = {2, 2}, .padding = {3, 3}}, one = {.stride = {1, 1}};
    const tc_conv own = {.padding = {1, 1}, .groups = 96};
    tc_tensor *in = m->inputs, x = tc_input(ctx, "x", TC_BF16, 3, 3, 60, 60);
    int *n = &m->n_inputs;
    in[(*n)++] = x;
    x = tc_relu(conv_norm(ctx, x, 64, 7, first, in, n));
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    tc_tensor y = tc_relu(conv_norm(ctx, x, 64, 3, same, in, n));
    x = tc_relu(tc_add(conv_norm(ctx, y, 64, 3, same, in, n), x));
    y = tc_relu(conv_norm(ctx, x, 72, 3, half, in, n));
    y = conv_norm(ctx, y, 72, 3, same, in, n);
    x = tc_relu(tc_add(y, conv_norm(ctx, x, 72, 1, (tc_conv){.stride = {2, 2}}, in, n)));
    y = tc_relu(conv_norm(ctx, x, 96, 1, one, in, n));
    y = tc_relu(conv_norm(ctx, y, 96, 3, own, in, n));
    x = tc_add(conv_norm(ctx, y, 72, 1, one, in, n), x);
    x = tc_cast(conv_norm(ctx, x, 64, 3, same, in, n), TC_F32);
    m->outputs[m->n_outputs++] = x;
}

/* Two convolutions, one behind the other: of lines; of one image, with elements apart; of cubes. */
static void ranks_network(tc_ctx *ctx, network *m)
{
    tc_tensor line = tc_input(ctx, "line", TC_BF16, 2, 40, 150);
    tc_tensor wide = tc_input(ctx, "wide", TC_BF16, 64, 40, 5);
    tc_tensor image = tc_input(ctx, "image", TC_BF16, 1, 32, 20, 17);
    tc_tensor dilated = tc_input(ctx, "dilated", TC_BF16, 64, 32, 3, 3);
    tc_tensor cube = tc_input(ctx, "cube", TC_BF16, 2, 32, 5, 6, 7);
    tc_tensor cubes = tc_input(ctx, "cubes", TC_BF16, 64, 32, 3, 3, 3);
    tc_tensor back = tc_input(ctx, "back", TC_BF16, 64, 64);
    tc_tensor all[7] = {line, wide, image, dilated, cube, cubes, back};
    tc_tensor y[3] = {
        tc_conv1d(line, wide, TC_NONE, &(tc_conv){.stride = {3}, .padding = {2}}),
        tc_conv2d(image, dilated, TC_NONE, &(tc_conv){.padding = {2, 3}, .dilation = {2, 3}}),
        tc_conv3d(cube, cubes, TC_NONE, &(tc_conv){.padding = {1, 1, 1}}),
    };
    y[0] = tc_conv1d(tc_relu(y[0]), tc_reshape(back, 64, 64, 1), TC_NONE, NULL);
    y[1] = tc_conv2d(tc_relu(y[1]), tc_reshape(back, 64, 64, 1, 1), TC_NONE, NULL);
    y[2] = tc_conv3d(tc_relu(y[2]), tc_reshape(back, 64, 64, 1, 1, 1), TC_NONE, NULL);
    for (int i = 0; i < 7; i++) {
        m->inputs[m->n_inputs++] = all[i];
    }
    for (int i = 0; i < 3; i++) {
        m->outputs[m->n_outputs++] = tc_cast(y[i], TC_F32);
    }
}

/* An image of three channels, and parts of a value from convolutions of another one. */
static void parts_network(tc_ctx *ctx, network *m)
{
    const tc_conv half = {.stride = {2, 2}}, same = {.padding = {1, 1}}, one = {.stride = {1, 1}};
    tc_tensor *in = m->inputs, x = tc_input(ctx, "x", TC_BF16, 2, 3, 57, 65);
    int *n = &m->n_inputs;
    in[(*n)++] = x;
    x = tc_relu(conv_norm(ctx, x, 64, 3, half, in, n));
    tc_tensor y = tc_relu(conv_norm(ctx, x, 32, 1, one, in, n)), parts[2];
    parts[0] = tc_relu(conv_norm(ctx, y, 64, 1, one, in, n));
    parts[1] = tc_relu(conv_norm(ctx, y, 72, 3, same, in, n));
    y = tc_relu(conv_norm(ctx, tc_cat(TC_TENSORS_N(parts, 2), 1), 64, 1, one, in, n));
    m->outputs[m->n_outputs++] = tc_cast(y, TC_F32);
}

/* A convolution, a norm by the statistics of what it made, relu. */
static tc_tensor conv_learning(tc_ctx *ctx, tc_tensor x, int64_t filters, int64_t kernel,
                               tc_conv how, network *m)
{
    int64_t channels = tc_size(x, 1) / (how.groups ? how.groups : 1);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, filters, channels, kernel, kernel);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, filters);
    tc_tensor shift = tc_input(ctx, "shift", TC_BF16, filters);
    m->inputs[m->n_inputs++] = w;
    m->inputs[m->n_inputs++] = scale;
    m->inputs[m->n_inputs++] = shift;
    x = tc_conv2d(x, w, TC_NONE, &how);
    return tc_relu(tc_batch_norm(x, TC_NONE, TC_NONE, scale, shift, true, 1e-3));
}

/* Norms that learn, a pool, a residual block, a step of two; the mean of what comes out, and the
 * gradients to all that was given. */
static void learning_network(tc_ctx *ctx, network *m)
{
    const tc_conv same = {.padding = {1, 1}}, half = {.stride = {2, 2}, .padding = {1, 1}};
    const tc_conv first = {.stride = {2, 2}, .padding = {3, 3}}, one = {.stride = {1, 1}};
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 3, 60, 60), gradients[NETWORK_INPUTS];
    m->inputs[m->n_inputs++] = x;
    x = conv_learning(ctx, x, 64, 7, first, m);
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    tc_tensor y = conv_learning(ctx, x, 64, 3, same, m);
    x = tc_add(conv_learning(ctx, y, 64, 3, same, m), x);
    x = conv_learning(ctx, x, 72, 3, half, m);
    x = conv_learning(ctx, x, 64, 1, one, m);
    x = tc_mean(tc_square(tc_cast(x, TC_F32)), TC_ALL, false);
    m->outputs[m->n_outputs++] = x;
    CHECK(tc_grad(x, m->inputs + 1, m->n_inputs - 1, gradients) == TC_OK);
    for (int i = 0; i + 1 < m->n_inputs; i++) {
        m->outputs[m->n_outputs++] = tc_cast(gradients[i], TC_F32);
    }
}

/* Filters of one channel each: by steps, of odd images whose lines are cut or stay whole, large
 * ones with elements apart; between convolutions of all channels. */
static void alone_network(tc_ctx *ctx, network *m)
{
    const tc_conv same = {.padding = {1, 1}}, one = {.stride = {1, 1}};
    const tc_conv half = {.padding = {1, 1}, .stride = {2, 2}, .groups = 32};
    const tc_conv apart = {.padding = {4, 4}, .dilation = {2, 2}, .groups = 24};
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 32, 13, 22), gradients[NETWORK_INPUTS];
    m->inputs[m->n_inputs++] = x;
    x = conv_learning(ctx, x, 32, 3, same, m);
    x = conv_learning(ctx, x, 32, 3, half, m);
    x = conv_learning(ctx, x, 24, 1, one, m);
    x = conv_learning(ctx, x, 24, 5, apart, m);
    x = conv_learning(ctx, x, 32, 1, one, m);
    x = tc_mean(tc_square(tc_cast(x, TC_F32)), TC_ALL, false);
    m->outputs[m->n_outputs++] = x;
    CHECK(tc_grad(x, m->inputs + 1, m->n_inputs - 1, gradients) == TC_OK);
    for (int i = 0; i + 1 < m->n_inputs; i++) {
        m->outputs[m->n_outputs++] = tc_cast(gradients[i], TC_F32);
    }
}

/* Linear layers over the channels of an image of 14 x 14, whose rows are not aligned, as in a
 * ConvNeXt block; and all gradients. And one over channels-last images, flattened as if the
 * channels came first. */
static void channel_mlp_network(tc_ctx *ctx, network *m)
{
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 64, 14, 14), gradients[NETWORK_INPUTS];
    tc_tensor up = tc_input(ctx, "up", TC_BF16, 64, 136);
    tc_tensor down = tc_input(ctx, "down", TC_BF16, 136, 64);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, 64, 1, 1);
    m->inputs[m->n_inputs++] = x;
    m->inputs[m->n_inputs++] = up;
    m->inputs[m->n_inputs++] = down;
    m->inputs[m->n_inputs++] = scale;
    tc_tensor y = tc_matmul(tc_gelu(tc_matmul(tc_permute(x, 0, 2, 3, 1), up)), down);
    y = tc_add(tc_mul(tc_permute(y, 0, 3, 1, 2), scale), x);
    y = tc_mean(tc_square(tc_cast(y, TC_F32)), TC_ALL, false);
    m->outputs[m->n_outputs++] = y;
    CHECK(tc_grad(y, m->inputs, m->n_inputs, gradients) == TC_OK);
    for (int i = 0; i < m->n_inputs; i++) {
        m->outputs[m->n_outputs++] = tc_cast(gradients[i], TC_F32);
    }
    tc_tensor last = tc_input(ctx, "last", TC_BF16, 64, 7, 7, 24);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, 24 * 7 * 7, 64);
    m->inputs[m->n_inputs++] = last;
    m->inputs[m->n_inputs++] = w;
    y = tc_matmul(tc_reshape(tc_permute(last, 0, 3, 1, 2), 64, 24 * 7 * 7), w);
    m->outputs[m->n_outputs++] = tc_cast(y, TC_F32);
}

typedef void make_network(tc_ctx *, network *);

/* bf16 numbers about 0, of a filter so small that its sums are about 1; heap. */
static uint16_t *network_numbers(tc_tensor t, bool is_filter, uint32_t *seed)
{
    int64_t count = tc_count(t);
    float scale = is_filter ? 1 / sqrtf((float)(count / tc_size(t, 0))) : 1;
    uint16_t *values = (uint16_t *)malloc((size_t)count * 2);
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        values[i] = to_half(((float)(*seed >> 8) / 8388608.0f - 1) * scale, false);
    }
    return values;
}

/* Its values, one output behind the other, heap; the same inputs for each backend. What is said of
 * its launches is in text. */
static float *run_network(const char *backend, make_network *make, char *text, size_t n_text,
                          tc_program_info *info, int64_t *n_out, int64_t *ends)
{
    tc_ctx *ctx = open_context(backend, 0);
    tc_buf in[NETWORK_INPUTS], out[NETWORK_OUTPUTS];
    network m = {.n_inputs = 0};
    tc_program *f = NULL;
    uint32_t seed = 7;
    *n_out = 0;
    make(ctx, &m);
    for (int i = 0; i < m.n_inputs; i++) {
        bool is_filter = i % 3 == 1 || tc_rank(m.inputs[i]) == 2;
        in[i] = TC_BUF((const void *)network_numbers(m.inputs[i], is_filter, &seed),
                       2 * tc_count(m.inputs[i]));
    }
    for (int i = 0; i < m.n_outputs; i++) {
        *n_out += tc_count(m.outputs[i]);
        ends[i] = *n_out;
    }
    float *values = (float *)calloc((size_t)*n_out, sizeof(float)), *at = values;
    for (int i = 0; i < m.n_outputs; i++) {
        out[i] = TC_BUF(at, tc_count(m.outputs[i]));
        at += tc_count(m.outputs[i]);
    }
    tc_status status = tc_compile_fn((tc_tensors){m.inputs, m.n_inputs},
                                     (tc_tensors){m.outputs, m.n_outputs}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(ctx));
    if (!status) {
        tc_program_get_info(f, info);
        snprintf(text, n_text, "%s", explained(f));
        status = tc_run(f, TC_BUFS_N(in, m.n_inputs), TC_BUFS_N(out, m.n_outputs));
        CHECK_MSG(status == TC_OK, "%s: %s, %s", backend, tc_error(f), emu_why);
    }
    for (int i = 0; i < m.n_inputs; i++) {
        free(in[i].data);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return values;
}

static int count_text(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

/* places, matrices: kernels whose rows are places of images, and that have a matrix unit's sums. */
static void check_network(make_network *make, int launches, int places, int matrices)
{
    static char text[100000], ignored[100000];
    tc_program_info info, other;
    memset(&info, 0, sizeof(info));
    int64_t n = 0;
    int64_t ends[NETWORK_OUTPUTS];
    float *got = run_network("emulated", make, text, sizeof(text), &info, &n, ends);
    float *want = run_network("interp", make, ignored, sizeof(ignored), &other, &n, ends);
    for (int64_t i = 0, output = 0; i < n; output++) {
        double size = 0, off = 0;
        for (; i < ends[output]; i++) {
            size += (double)want[i] * (double)want[i];
            off += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        }
        CHECK_MSG(off <= 0.05 * 0.05 * size, "output %d is off by %g of %g", (int)output, sqrt(off),
                  sqrt(size));
    }
    CHECK_MSG(info.n_steps == launches && count_text(text, ", places") == places &&
                  count_text(text, "class MATRIX") == matrices,
              "%d launches, %d of places, %d of the unit, expected %d, %d and %d:\n%s",
              info.n_steps, count_text(text, ", places"), count_text(text, "class MATRIX"),
              launches, places, matrices, text);
    free(got);
    free(want);
}

/* Norms, relus, shortcuts and pools are computed where a convolution's result is, and read as it
 * is stored: a launch for each of ten convolutions and for the pool, one that copies the image,
 * eight that copy filters. */
TEST(channels_stay_last_between_convolutions)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(residual_network, 20, 4, 8);
}

/* Each part is finished where it is made, and the whole a copy of them: a launch for each of five
 * convolutions and for that, two that copy filters. */
TEST(parts_of_a_value_are_stored_channels_last)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(parts_network, 8, 1, 4);
}

/* The values of both passes of a training step are stored so too. */
TEST(channels_stay_last_where_norms_learn)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(learning_network, 69, 8, 13);
}

/* So do those of filters of one channel each, whose gradients are sums of parts. */
TEST(channels_stay_last_where_filters_of_one_channel_learn)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(alone_network, 56, 1, 2);
}

/* Two products and their four gradients, and the one of flattened images, over copies of images as
 * matrices. */
TEST(images_with_odd_rows_are_copied_as_matrices)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(channel_mlp_network, 15, 0, 7);
}

TEST(rows_are_places_of_lines_images_and_cubes)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(ranks_network, 12, 3, 5);
}

TEST_MAIN
