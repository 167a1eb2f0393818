/* alexnet.h - AlexNet (torchvision: alexnet). */
#ifndef ALEXNET_H
#define ALEXNET_H

#include "nn.h"

static tc_tensor alexnet_conv(nn m, const char *name, tc_tensor x, int64_t out, int64_t kernel,
                              int64_t stride, int64_t padding)
{
    return tc_relu(nn_conv2d(m, name, x, out, kernel, stride, padding, .bias = true));
}

/* images [N, 3, H, W] to logits [N, classes]; settings: width_divisor, classes, dropout */
static void alexnet(nn m, const tc_tensor *images, tc_tensor *logits)
{
    const tc_pool pool = {.kernel = {3, 3}, .stride = {2, 2}};
    int64_t divisor = (int64_t)nn_setting(m, "width_divisor", 1), units = 4096 / divisor;
    double p = nn_setting(m, "dropout", 0.5);
    nn f = nn_in(m, "features"), c = nn_in(m, "classifier");

    tc_tensor x = tc_max_pool2d(alexnet_conv(f, "0", images[0], 64 / divisor, 11, 4, 2), &pool);
    x = tc_max_pool2d(alexnet_conv(f, "3", x, 192 / divisor, 5, 1, 2), &pool);
    x = alexnet_conv(f, "6", x, 384 / divisor, 3, 1, 1);
    x = alexnet_conv(f, "8", x, 256 / divisor, 3, 1, 1);
    x = tc_max_pool2d(alexnet_conv(f, "10", x, 256 / divisor, 3, 1, 1), &pool);
    x = tc_adaptive_avg_pool2d(x, 6, 6);
    x = tc_reshape(x, tc_size(x, 0), tc_size(x, 1) * 36);
    x = tc_relu(nn_linear(c, "1", nn_dropout(m, x, p), units, true));
    x = tc_relu(nn_linear(c, "4", nn_dropout(m, x, p), units, true));
    x = nn_linear(c, "6", x, (int64_t)nn_setting(m, "classes", 1000), true);
    logits[0] = nn_end(m, x);
}

#endif
