/* resnet.h - ResNet and ResNeXt (torchvision: resnet18, resnet50, resnext50_32x4d, ...).
 *
 * Four stages of blocks; a block adds what two convolutions (or three: a bottleneck, of groups
 * where it is a ResNeXt) make of its input to that input. */
#ifndef RESNET_H
#define RESNET_H

#include "nn.h"

/* resnet_conv(m, "conv1", "bn1", x, 64, 3, .padding = 1): a convolution and its norm. */
#define resnet_conv(m, conv, norm, x, out, kernel, ...)                                            \
    nn_conv_norm(nn_in((m), conv), nn_in((m), norm), (x), (out), (kernel), 0.1,                    \
                 (nn_conv){__VA_ARGS__})

/* What is added to: the input, or its projection where the block changes the shape. */
static tc_tensor resnet_shortcut(nn m, tc_tensor x, int64_t out, int64_t stride, bool projects)
{
    nn at = nn_in(m, "downsample");
    return projects ? resnet_conv(at, "0", "1", x, out, 1, .stride = stride) : x;
}

static tc_tensor resnet_basic(nn m, tc_tensor x, int64_t width, int64_t stride)
{
    tc_tensor y = resnet_conv(m, "conv1", "bn1", x, width, 3, .stride = stride, .padding = 1);
    y = resnet_conv(m, "conv2", "bn2", tc_relu(y), width, 3, .padding = 1);
    bool projects = stride != 1 || tc_size(x, 1) != width;
    return tc_relu(tc_add(y, resnet_shortcut(m, x, width, stride, projects)));
}

static tc_tensor resnet_bottleneck(nn m, tc_tensor x, int64_t width, int64_t out, int64_t stride,
                                   int64_t groups, bool projects)
{
    tc_tensor y = tc_relu(resnet_conv(m, "conv1", "bn1", x, width, 1, 0));
    y = tc_relu(resnet_conv(m, "conv2", "bn2", y, width, 3, .stride = stride, .padding = 1,
                            .groups = groups));
    y = resnet_conv(m, "conv3", "bn3", y, out, 1, 0);
    return tc_relu(tc_add(y, resnet_shortcut(m, x, out, stride, projects)));
}

/* images [N, 3, H, W] to logits [N, classes]. Settings: layers (blocks of each stage), bottleneck,
 * groups and width_per_group, width_divisor (of all channels, and of groups down to 2), classes. */
static void resnet(nn m, const tc_tensor *images, tc_tensor *logits)
{
    double layers[4] = {3, 4, 6, 3};
    int64_t divisor = (int64_t)nn_setting(m, "width_divisor", 1);
    int64_t groups = (int64_t)nn_setting(m, "groups", 1);
    int64_t group_width = (int64_t)nn_setting(m, "width_per_group", 64);
    bool bottleneck = nn_setting(m, "bottleneck", 1) != 0;
    nn_setting_list(m, "layers", layers, 4);

    tc_tensor x = tc_relu(
        resnet_conv(m, "conv1", "bn1", images[0], 64 / divisor, 7, .stride = 2, .padding = 3));
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    for (int stage = 0; stage < 4; stage++) {
        int64_t width = (64 << stage) / divisor, inner = width * group_width * groups / 64;
        int64_t fewer = groups > 2 * divisor ? groups / divisor : groups > 2 ? 2 : groups;
        for (int i = 0; i < (int)layers[stage]; i++) {
            nn block = nn_in(m, "layer%d.%d", stage + 1, i);
            int64_t stride = i == 0 && stage > 0 ? 2 : 1;
            x = bottleneck ? resnet_bottleneck(block, x, inner, 4 * width, stride, fewer, i == 0)
                           : resnet_basic(block, x, width, stride);
        }
    }
    x = nn_linear(m, "fc", tc_mean(x, TC_AXES(2, 3), false),
                  (int64_t)nn_setting(m, "classes", 1000), true);
    logits[0] = nn_end(m, x);
}

#endif
