/* vgg.h - VGG (torchvision: vgg16; other depths by the setting layers). */
#ifndef VGG_H
#define VGG_H

#include "nn.h"

/* images [N, 3, H, W] to logits [N, classes]; settings: layers (convolutions between two poolings),
 * width_divisor, classes, dropout */
static void vgg(nn m, const tc_tensor *images, tc_tensor *logits)
{
    double layers[5] = {2, 2, 3, 3, 3};
    int64_t divisor = (int64_t)nn_setting(m, "width_divisor", 1), units = 4096 / divisor;
    double p = nn_setting(m, "dropout", 0.5);
    nn c = nn_in(m, "classifier");
    tc_tensor x = images[0];
    nn_setting_list(m, "layers", layers, 5);
    for (int stage = 0, number = 0; stage < 5; stage++, number++) { /* a pooling has a number too */
        int64_t width = (stage < 3 ? 64 << stage : 512) / divisor;
        for (int i = 0; i < (int)layers[stage]; i++, number += 2) { /* and each relu */
            x = nn_conv2d(nn_in(m, "features.%d", number), "", x, width, 3, .padding = 1,
                          .bias = true);
            x = tc_relu(x);
        }
        x = tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}});
    }
    x = tc_adaptive_avg_pool2d(x, 7, 7);
    x = tc_reshape(x, tc_size(x, 0), tc_size(x, 1) * 49);
    x = nn_dropout(m, tc_relu(nn_linear(c, "0", x, units, true)), p);
    x = nn_dropout(m, tc_relu(nn_linear(c, "3", x, units, true)), p);
    x = nn_linear(c, "6", x, (int64_t)nn_setting(m, "classes", 1000), true);
    logits[0] = nn_end(m, x);
}

#endif
