/* squeezenet.h - SqueezeNet 1.1 (torchvision: squeezenet1_1). */
#ifndef SQUEEZENET_H
#define SQUEEZENET_H

#include "nn.h"

/* Few channels by 1x1, from these as many by 1x1 as by 3x3. */
static tc_tensor squeezenet_fire(nn m, tc_tensor x, int64_t few, int64_t many)
{
    x = tc_relu(nn_conv2d(m, "squeeze", x, few, 1, .bias = true));
    tc_tensor points = tc_relu(nn_conv2d(m, "expand1x1", x, many, 1, .bias = true));
    tc_tensor squares = nn_conv2d(m, "expand3x3", x, many, 3, .padding = 1, .bias = true);
    return tc_cat(TC_TENSORS(points, tc_relu(squares)), 1);
}

/* images [N, 3, H, W] to logits [N, classes]; settings: width_divisor, classes, dropout */
static void squeezenet(nn m, const tc_tensor *images, tc_tensor *logits)
{
    /* channels after the squeeze of each fire; 0: a pooling */
    static const int squeezes[] = {16, 16, 0, 32, 32, 0, 48, 48, 64, 64};
    const tc_pool pool = {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true};
    int64_t divisor = (int64_t)nn_setting(m, "width_divisor", 1);
    int64_t classes = (int64_t)nn_setting(m, "classes", 1000);
    nn f = nn_in(m, "features");

    tc_tensor x = nn_conv2d(f, "0", images[0], 64 / divisor, 3, .stride = 2, .bias = true);
    x = tc_max_pool2d(tc_relu(x), &pool);
    for (int i = 0; i < 10; i++) {
        int64_t few = squeezes[i] / divisor;
        x = few ? squeezenet_fire(nn_in(f, "%d", i + 3), x, few, 4 * few) : tc_max_pool2d(x, &pool);
    }
    x = nn_dropout(m, x, nn_setting(m, "dropout", 0.5));
    x = tc_relu(nn_conv2d(m, "classifier.1", x, classes, 1, .bias = true));
    logits[0] = nn_end(m, tc_mean(x, TC_AXES(2, 3), false));
}

#endif
