/* mobilenet.h - MobileNetV2 and MnasNet (torchvision: mobilenet_v2, mnasnet1_0).
 *
 * Blocks widen their input by 1x1, filter each channel by itself, and narrow it again; where shapes
 * allow they add the input. */
#ifndef MOBILENET_H
#define MOBILENET_H

#include "nn.h"

typedef struct mobilenet_stage {
    int widening, channels, blocks, stride, kernel;
} mobilenet_stage;

/* A multiple of 8 near channels * factor, at most a tenth less. */
static int64_t mobilenet_channels(double channels, double factor)
{
    int64_t rounded = (int64_t)(channels * factor + 4) / 8 * 8;
    rounded = rounded < 8 ? 8 : rounded;
    return (double)rounded < 0.9 * channels * factor ? rounded + 8 : rounded;
}

/* ---- MobileNetV2 ---- */

static tc_tensor mobilenet_v2_conv(nn m, tc_tensor x, int64_t out, nn_conv o, int64_t kernel)
{
    return tc_relu6(nn_conv_norm(nn_in(m, "0"), nn_in(m, "1"), x, out, kernel, 0.1, o));
}

static tc_tensor mobilenet_v2_block(nn m, tc_tensor x, int64_t out, int64_t stride, int widening)
{
    int64_t in = tc_size(x, 1), inner = in * widening;
    int at = 0;
    tc_tensor y = x;
    if (widening > 1) {
        y = mobilenet_v2_conv(nn_in(m, "conv.%d", at++), y, inner, (nn_conv){0}, 1);
    }
    nn_conv each = {.stride = stride, .padding = 1, .groups = inner};
    y = mobilenet_v2_conv(nn_in(m, "conv.%d", at), y, inner, each, 3);
    y = nn_conv_norm(nn_in(m, "conv.%d", at + 1), nn_in(m, "conv.%d", at + 2), y, out, 1, 0.1,
                     (nn_conv){0});
    return stride == 1 && in == out ? tc_add(x, y) : y;
}

/* images [N, 3, H, W] to logits [N, classes]; settings: width_mult, classes, dropout */
static void mobilenet_v2(nn m, const tc_tensor *images, tc_tensor *logits)
{
    static const mobilenet_stage stages[] = {{1, 16, 1, 1, 3}, {6, 24, 2, 2, 3}, {6, 32, 3, 2, 3},
                                             {6, 64, 4, 2, 3}, {6, 96, 3, 1, 3}, {6, 160, 3, 2, 3},
                                             {6, 320, 1, 1, 3}};
    double width = nn_setting(m, "width_mult", 1);
    int64_t last = mobilenet_channels(1280, width > 1 ? width : 1);
    nn f = nn_in(m, "features");
    int number = 1;

    int64_t first = mobilenet_channels(32, width);
    nn_conv halving = {.stride = 2, .padding = 1};
    tc_tensor x = mobilenet_v2_conv(nn_in(f, "0"), images[0], first, halving, 3);
    for (int i = 0; i < 7; i++) {
        mobilenet_stage s = stages[i];
        for (int k = 0; k < s.blocks; k++) {
            int64_t out = mobilenet_channels(s.channels, width);
            x = mobilenet_v2_block(nn_in(f, "%d", number++), x, out, k ? 1 : s.stride, s.widening);
        }
    }
    x = mobilenet_v2_conv(nn_in(f, "%d", number), x, last, (nn_conv){0}, 1);
    x = nn_dropout(m, tc_mean(x, TC_AXES(2, 3), false), nn_setting(m, "dropout", 0.2));
    x = nn_linear(m, "classifier.1", x, (int64_t)nn_setting(m, "classes", 1000), true);
    logits[0] = nn_end(m, x);
}

/* ---- MnasNet ---- */

/* Convolution and norm are m.first and the number after it. */
static tc_tensor mnasnet_conv(nn m, int first, tc_tensor x, int64_t out, int64_t kernel, nn_conv o)
{
    o.padding = kernel / 2;
    return nn_conv_norm(nn_in(m, "%d", first), nn_in(m, "%d", first + 1), x, out, kernel,
                        1 - 0.9997, o);
}

static tc_tensor mnasnet_block(nn m, tc_tensor x, int64_t out, int64_t stride, mobilenet_stage s)
{
    nn l = nn_in(m, "layers");
    int64_t in = tc_size(x, 1), inner = in * s.widening;
    nn_conv each = {.stride = stride, .groups = inner};
    tc_tensor y = tc_relu(mnasnet_conv(l, 0, x, inner, 1, (nn_conv){0}));
    y = tc_relu(mnasnet_conv(l, 3, y, inner, s.kernel, each));
    y = mnasnet_conv(l, 6, y, out, 1, (nn_conv){0});
    return stride == 1 && in == out ? tc_add(x, y) : y;
}

/* images [N, 3, H, W] to logits [N, classes]; settings: alpha, classes, dropout */
static void mnasnet(nn m, const tc_tensor *images, tc_tensor *logits)
{
    static const mobilenet_stage stages[] = {{3, 24, 3, 2, 3},  {3, 40, 3, 2, 5},
                                             {6, 80, 3, 2, 5},  {6, 96, 2, 1, 3},
                                             {6, 192, 4, 2, 5}, {6, 320, 1, 1, 3}};
    double alpha = nn_setting(m, "alpha", 1);
    int64_t first = mobilenet_channels(32, alpha), second = mobilenet_channels(16, alpha);
    nn l = nn_in(m, "layers");

    tc_tensor x = tc_relu(mnasnet_conv(l, 0, images[0], first, 3, (nn_conv){.stride = 2}));
    x = tc_relu(mnasnet_conv(l, 3, x, first, 3, (nn_conv){.groups = first}));
    x = mnasnet_conv(l, 6, x, second, 1, (nn_conv){0});
    for (int i = 0; i < 6; i++) {
        mobilenet_stage s = stages[i];
        for (int k = 0; k < s.blocks; k++) {
            x = mnasnet_block(nn_in(l, "%d.%d", i + 8, k), x, mobilenet_channels(s.channels, alpha),
                              k ? 1 : s.stride, s);
        }
    }
    x = tc_relu(mnasnet_conv(l, 14, x, 1280, 1, (nn_conv){0}));
    x = nn_dropout(m, tc_mean(x, TC_AXES(2, 3), false), nn_setting(m, "dropout", 0.2));
    x = nn_linear(m, "classifier.1", x, (int64_t)nn_setting(m, "classes", 1000), true);
    logits[0] = nn_end(m, x);
}

#endif
