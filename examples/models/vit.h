/* vit.h - the vision transformer (timm: vit_tiny_patch16_224, vit_base_patch16_224, ...). */
#ifndef VIT_H
#define VIT_H

#include "nn.h"

static tc_tensor vit_attention(nn m, tc_tensor x, int64_t heads)
{
    int64_t width = tc_size(x, 2);
    tc_tensor all = nn_linear(m, "qkv", x, 3 * width, true);
    tc_tensor q = nn_split_heads(tc_slice(all, 2, 0, width, 1), heads);
    tc_tensor k = nn_split_heads(tc_slice(all, 2, width, 2 * width, 1), heads);
    tc_tensor v = nn_split_heads(tc_slice(all, 2, 2 * width, TC_END, 1), heads);
    x = nn_join_heads(nn_attention(m, q, k, v, TC_NONE, false, nn_setting(m, "attn_drop_rate", 0)));
    return nn_dropout(m, nn_linear(m, "proj", x, width, true), nn_setting(m, "proj_drop_rate", 0));
}

static tc_tensor vit_block(nn m, tc_tensor x, int64_t heads, int64_t inner)
{
    x = tc_add(x, vit_attention(nn_in(m, "attn"), nn_layer_norm(m, "norm1", x, 1e-6), heads));
    double p = nn_setting(m, "proj_drop_rate", 0);
    tc_tensor y = nn_linear(m, "mlp.fc1", nn_layer_norm(m, "norm2", x, 1e-6), inner, true);
    y = nn_linear(m, "mlp.fc2", nn_dropout(m, tc_gelu(y), p), tc_size(x, 2), true);
    return tc_add(x, nn_dropout(m, y, p));
}

/* images [N, 3, S, S] to logits [N, num_classes]. Settings have the names of timm; the size of
 * images is that of the input, which is what the position embeddings must fit. */
static void vit(nn m, const tc_tensor *images, tc_tensor *logits)
{
    int64_t patch = (int64_t)nn_setting(m, "patch_size", 16), n = tc_size(images[0], 0);
    int64_t width = (int64_t)nn_setting(m, "embed_dim", 768);
    int64_t heads = (int64_t)nn_setting(m, "num_heads", 12);
    int64_t inner = (int64_t)((double)width * nn_setting(m, "mlp_ratio", 4));
    int depth = (int)nn_setting(m, "depth", 12);

    tc_tensor x = nn_conv2d(m, "patch_embed.proj", images[0], width, patch, .stride = patch,
                            .bias = true);
    x = tc_transpose(tc_reshape(x, n, width, -1), 1, 2);
    tc_tensor start = nn_param(m, "cls_token", NN_WEIGHT, 1, 1, width);
    x = tc_cat(TC_TENSORS(tc_expand(start, n, 1, width), x), 1);
    x = tc_add(x, nn_param(m, "pos_embed", NN_WEIGHT, 1, tc_size(x, 1), width));
    x = nn_dropout(m, x, nn_setting(m, "pos_drop_rate", 0));
    for (int i = 0; i < depth; i++) {
        x = vit_block(nn_in(m, "blocks.%d", i), x, heads, inner);
    }
    x = nn_layer_norm(m, "norm", x, 1e-6);
    x = tc_squeeze(tc_slice(x, 1, 0, 1, 1), 1);
    x = nn_dropout(m, x, nn_setting(m, "drop_rate", 0));
    x = nn_linear(m, "head", x, (int64_t)nn_setting(m, "num_classes", 1000), true);
    logits[0] = nn_end(m, x);
}

#endif
