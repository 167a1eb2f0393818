/* bench/blocks.h - random blocks of layers, and of movement: what fusion.c, price.c and roofline.c
 * compile.
 *
 * In: a seed. Out: 3 to 6 layers over images [n, c, h, w] or rows [n, t, d], or 2 to 5 movements of
 * an image, as a tensor of a context, and the inputs that were made for it. The same seed draws the
 * same block everywhere. */
#ifndef BENCH_BLOCKS_H
#define BENCH_BLOCKS_H

enum { MOST_INPUTS = 64, NAME = 200 };

typedef struct block {
    tc_ctx *ctx;
    uint64_t state;
    tc_tensor inputs[MOST_INPUTS];
    int n_inputs;
    char name[NAME];
} block;

static int draw(block *b, int n)
{
    b->state ^= b->state << 13;
    b->state ^= b->state >> 7;
    b->state ^= b->state << 17;
    return (int)(b->state % (uint64_t)n);
}

static tc_tensor input(block *b, int rank, const int64_t *sizes)
{
    int64_t words[8] = {TC_F32};
    memcpy(words + 1, sizes, (size_t)rank * sizeof(*sizes));
    tc_tensor t = tc_input_at(b->ctx, "x", rank + 1, words, TC_HERE);
    if (b->n_inputs < MOST_INPUTS) {
        b->inputs[b->n_inputs++] = t;
    }
    return t;
}
#define INPUT(b, ...)                                                                              \
    input(b, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static tc_tensor image_conv(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1), to = 16 << draw(b, 4), k = 1 + 2 * draw(b, 2);
    tc_conv how = {.padding = {k / 2, k / 2}};
    return tc_conv2d(x, INPUT(b, to, c, k, k), INPUT(b, to), &how);
}

static tc_tensor image_depthwise(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1), k = 3 + 2 * draw(b, 3);
    tc_conv how = {.padding = {k / 2, k / 2}, .groups = (int)c};
    return tc_conv2d(x, INPUT(b, c, 1, k, k), INPUT(b, c), &how);
}

static tc_tensor image_affine(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1);
    return tc_relu(tc_add(tc_mul(x, INPUT(b, c, 1, 1)), INPUT(b, c, 1, 1)));
}

static tc_tensor image_norm(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1);
    return tc_group_norm(x, 4, INPUT(b, c), INPUT(b, c), 1e-5);
}

static tc_tensor image_pool(block *b, tc_tensor x)
{
    (void)b;
    tc_pool how = {.kernel = {2, 2}, .stride = {2, 2}};
    return tc_size(x, 2) >= 8 ? tc_max_pool2d(x, &how) : tc_silu(x);
}

/* Nearest neighbours: an axis of 2 behind each side. */
static tc_tensor doubled(tc_tensor x)
{
    int64_t n = tc_size(x, 0), c = tc_size(x, 1), h = tc_size(x, 2), w = tc_size(x, 3);
    tc_tensor y = tc_expand(tc_reshape(x, n, c, h, 1, w, 1), n, c, h, 2, w, 2);
    return tc_reshape(y, n, c, 2 * h, 2 * w);
}

/* The decoder of a U-Net. */
static tc_tensor image_up(block *b, tc_tensor x)
{
    int64_t n = tc_size(x, 0), c = tc_size(x, 1), h = tc_size(x, 2), w = tc_size(x, 3);
    if (h > 56) {
        return tc_tanh(x);
    }
    tc_tensor skip = image_affine(b, INPUT(b, n, 16, 2 * h, 2 * w));
    tc_tensor both = tc_cat(TC_TENSORS(doubled(image_affine(b, x)), skip), 1);
    return tc_conv2d(both, INPUT(b, c, c + 16, 3, 3), TC_NONE, &(tc_conv){.padding = {1, 1}});
}

/* Over channels that come last, and back. */
static tc_tensor image_mlp(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1);
    tc_tensor y = tc_layer_norm(tc_permute(x, 0, 2, 3, 1), TC_AXES(-1), INPUT(b, c), INPUT(b, c),
                                1e-6);
    y = tc_gelu(tc_linear(y, INPUT(b, 4 * c, c), INPUT(b, 4 * c)));
    return tc_add(x, tc_permute(tc_linear(y, INPUT(b, c, 4 * c), TC_NONE), 0, 3, 1, 2));
}

static tc_tensor image_next(block *b, tc_tensor x)
{
    return image_mlp(b, image_depthwise(b, x));
}

static tc_tensor image_gate(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1);
    tc_tensor mean = tc_mean(x, TC_AXES(2, 3), true);
    return tc_mul(x, tc_sigmoid(tc_conv2d(mean, INPUT(b, c, c, 1, 1), TC_NONE, NULL)));
}

static tc_tensor image_shuffle(block *b, tc_tensor x)
{
    (void)b;
    int64_t n = tc_size(x, 0), c = tc_size(x, 1), h = tc_size(x, 2), w = tc_size(x, 3);
    return tc_reshape(tc_transpose(tc_reshape(x, n, 2, c / 2, h, w), 1, 2), n, c, h, w);
}

static tc_tensor rows_linear(block *b, tc_tensor x)
{
    int64_t d = tc_size(x, 2), to = 64 << draw(b, 3);
    return tc_gelu(tc_linear(x, INPUT(b, to, d), INPUT(b, to)));
}

static tc_tensor rows_norm(block *b, tc_tensor x)
{
    int64_t d = tc_size(x, 2);
    return tc_layer_norm(x, TC_AXES(-1), INPUT(b, d), INPUT(b, d), 1e-5);
}

static tc_tensor rows_heads(tc_tensor x, int64_t n, int64_t t)
{
    return tc_transpose(tc_reshape(x, n, t, tc_size(x, 2) / 32, 32), 1, 2);
}

static tc_tensor rows_attention(block *b, tc_tensor x)
{
    int64_t n = tc_size(x, 0), t = tc_size(x, 1), d = tc_size(x, 2);
    tc_tensor part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = rows_heads(tc_linear(x, INPUT(b, d, d), TC_NONE), n, t);
    }
    tc_tensor y = tc_scaled_dot_product_attention(part[0], part[1], part[2], TC_NONE,
                                                  draw(b, 2) != 0, 0);
    return tc_reshape(tc_transpose(y, 1, 2), n, t, d);
}

static tc_tensor rows_softmax(block *b, tc_tensor x)
{
    return tc_softmax(tc_tanh(x), 1 + draw(b, 2));
}

static tc_tensor rows_mixer(block *b, tc_tensor x)
{
    int64_t t = tc_size(x, 1);
    return tc_transpose(tc_gelu(tc_linear(tc_transpose(x, 1, 2), INPUT(b, t, t), TC_NONE)), 1, 2);
}

static tc_tensor rows_glu(block *b, tc_tensor x)
{
    int64_t d = tc_size(x, 2);
    tc_tensor y = tc_linear(x, INPUT(b, 2 * d, d), TC_NONE);
    return tc_mul(tc_slice(y, 2, 0, d, 1), tc_silu(tc_slice(y, 2, d, 2 * d, 1)));
}

static tc_tensor rows_shift(block *b, tc_tensor x)
{
    (void)b;
    return tc_add(x, tc_pad(tc_slice(x, 1, 0, tc_size(x, 1) - 1, 1), 1, 1, 0, 0));
}

static tc_tensor rows_sum(block *b, tc_tensor x)
{
    (void)b;
    return tc_mul(tc_cumsum(x, 1), 0.01);
}

typedef struct layer {
    const char *name;
    tc_tensor (*make)(block *b, tc_tensor x);
} layer;
static const layer image_layers[] = {{"conv", image_conv},     {"depthwise", image_depthwise},
                                     {"affine", image_affine}, {"norm", image_norm},
                                     {"pool", image_pool},     {"up", image_up},
                                     {"mlp", image_mlp},       {"next", image_next},
                                     {"gate", image_gate},     {"shuffle", image_shuffle}};
static const layer row_layers[] = {{"linear", rows_linear},       {"norm", rows_norm},
                                   {"attention", rows_attention}, {"softmax", rows_softmax},
                                   {"mixer", rows_mixer},         {"glu", rows_glu},
                                   {"shift", rows_shift},         {"sum", rows_sum}};

static tc_tensor draw_block(block *b, int seed)
{
    static const int64_t sides[] = {14, 28, 56}, steps[] = {50, 64, 197};
    b->state = (uint64_t)seed * 0x9E3779B97F4A7C15u + 1;
    for (int i = 0; i < 8; i++) {
        draw(b, 2);
    }
    bool images = draw(b, 2);
    int64_t h = sides[draw(b, 3)], t = steps[draw(b, 3)], n = 1 + draw(b, 2), c = 16 << draw(b, 3);
    tc_tensor x = images ? INPUT(b, n, c, h, h) : INPUT(b, n, t, 4 * c);
    int at = snprintf(b->name, NAME, "%d:", seed);
    for (int i = 3 + draw(b, 4); i > 0; i--) {
        int count = (int)(images ? sizeof(image_layers) : sizeof(row_layers)) / (int)sizeof(layer);
        const layer *l = (images ? image_layers : row_layers) + draw(b, count);
        x = l->make(b, x);
        at += snprintf(b->name + at, (size_t)(NAME - at), " %s", l->name);
    }
    return x;
}

/* ---- random movement ---- */

static tc_tensor move_pad(block *b, tc_tensor x)
{
    int axis = 2 + draw(b, 2);
    return tc_pad(x, axis, 1 + draw(b, 3), draw(b, 3), 0);
}

static tc_tensor move_cat(block *b, tc_tensor x)
{
    int axis = 1 + draw(b, 3);
    int64_t n[4] = {tc_size(x, 0), tc_size(x, 1), tc_size(x, 2), tc_size(x, 3)};
    n[axis] = 8 + draw(b, 25);
    tc_tensor y = tc_relu(input(b, 4, n));
    return draw(b, 2) ? tc_cat(TC_TENSORS(x, y), axis) : tc_cat(TC_TENSORS(y, x), axis);
}

static tc_tensor move_slice(block *b, tc_tensor x)
{
    int axis = 1 + draw(b, 3), step = 1 + draw(b, 2);
    return tc_slice(x, axis, draw(b, 3), tc_size(x, axis), step);
}

static tc_tensor move_up(block *b, tc_tensor x)
{
    (void)b;
    return tc_size(x, 2) <= 56 && tc_size(x, 3) <= 56 ? doubled(x) : x;
}

static tc_tensor move_transpose(block *b, tc_tensor x)
{
    int axis = 1 + draw(b, 2);
    return tc_transpose(x, axis, axis + 1 + draw(b, 3 - axis));
}

static tc_tensor move_flip(block *b, tc_tensor x)
{
    return tc_flip(x, 1 + draw(b, 3));
}

static tc_tensor move_roll(block *b, tc_tensor x)
{
    return tc_roll(x, 1 + draw(b, 7), 1 + draw(b, 3));
}

static tc_tensor move_gather(block *b, tc_tensor x)
{
    static int32_t at[64];
    int axis = 1 + draw(b, 3), n = 16 + draw(b, 48);
    for (int i = 0; i < n; i++) {
        at[i] = (int32_t)(i * 7 % tc_size(x, axis));
    }
    return tc_index_select(x, axis, tc_copy_in(b->ctx, at, TC_I32, n));
}

static tc_tensor move_shuffle(block *b, tc_tensor x)
{
    return tc_size(x, 1) % 2 == 0 ? image_shuffle(b, x) : x;
}

static tc_tensor move_none(block *b, tc_tensor x)
{
    int64_t c = tc_size(x, 1);
    tc_tensor y = tc_mul(x, INPUT(b, c, 1, 1));
    switch (draw(b, 4)) {
    case 0: return tc_relu(y);
    case 1: return tc_gelu(y);
    case 2: return tc_add(y, x);
    default: return tc_tanh(y);
    }
}

static tc_tensor draw_movement(block *b, int seed)
{
    static const layer moves[] = {{"pad", move_pad},         {"cat", move_cat},
                                  {"slice", move_slice},     {"up", move_up},
                                  {"turn", move_transpose},  {"flip", move_flip},
                                  {"roll", move_roll},       {"gather", move_gather},
                                  {"shuffle", move_shuffle}, {"ops", move_none},
                                  {"ops", move_none}};
    static const int64_t sides[] = {14, 28, 32, 56, 63};
    b->state = (uint64_t)seed * 0x9E3779B97F4A7C15u + 11;
    for (int i = 0; i < 8; i++) {
        draw(b, 2);
    }
    int64_t h = sides[draw(b, 5)], w = sides[draw(b, 5)], c = 16 << draw(b, 3);
    tc_tensor x = INPUT(b, 1 + draw(b, 2), c, h, w);
    int at = snprintf(b->name, NAME, "%d:", seed);
    for (int i = 2 + draw(b, 4); i > 0; i--) {
        const layer *l = moves + draw(b, (int)(sizeof(moves) / sizeof(moves[0])));
        x = l->make(b, x);
        at += snprintf(b->name + at, (size_t)(NAME - at), " %s", l->name);
    }
    int axis = 1 + draw(b, 3);
    switch (draw(b, 4)) {
    case 0:
        snprintf(b->name + at, (size_t)(NAME - at), " sum %d", axis);
        return tc_sum(x, TC_AXES(axis), false);
    case 1:
        snprintf(b->name + at, (size_t)(NAME - at), " softmax %d", axis);
        return tc_softmax(x, axis);
    default: return tc_add(x, 1);
    }
}

#endif
