/* gpt2.h - GPT-2 (transformers: GPT2Model, with the head of GPT2LMHeadModel, whose files have the
 * prefix "transformer."). */
#ifndef GPT2_H
#define GPT2_H

#include "nn.h"

/* A linear layer whose weight is stored as [in, out]. */
static tc_tensor gpt2_linear(nn m, const char *name, tc_tensor x, int64_t out)
{
    nn at = nn_layer(m, name);
    tc_tensor w = nn_param(at, "weight", NN_WEIGHT, tc_size(x, -1), out);
    return nn_end_layer(at, tc_add(tc_matmul(x, w), nn_param(at, "bias", NN_BIAS, out)));
}

static tc_tensor gpt2_attention(nn m, tc_tensor x, int64_t heads)
{
    int64_t width = tc_size(x, 2);
    tc_tensor all = gpt2_linear(m, "c_attn", x, 3 * width);
    tc_tensor q = nn_split_heads(tc_slice(all, 2, 0, width, 1), heads);
    tc_tensor k = nn_split_heads(tc_slice(all, 2, width, 2 * width, 1), heads);
    tc_tensor v = nn_split_heads(tc_slice(all, 2, 2 * width, TC_END, 1), heads);
    x = nn_join_heads(nn_attention(m, q, k, v, TC_NONE, true, nn_setting(m, "attn_pdrop", 0.1)));
    return nn_dropout(m, gpt2_linear(m, "c_proj", x, width), nn_setting(m, "resid_pdrop", 0.1));
}

static tc_tensor gpt2_mlp(nn m, tc_tensor x)
{
    int64_t width = tc_size(x, 2);
    x = gpt2_linear(m, "c_proj", tc_gelu_tanh(gpt2_linear(m, "c_fc", x, 4 * width)), width);
    return nn_dropout(m, x, nn_setting(m, "resid_pdrop", 0.1));
}

/* ids [N, T] to logits [N, T, vocab_size]. Settings have the names of GPT2Config. */
static void gpt2(nn m, const tc_tensor *ids, tc_tensor *logits)
{
    int64_t words = (int64_t)nn_setting(m, "vocab_size", 50257), length = tc_size(ids[0], 1);
    int64_t width = (int64_t)nn_setting(m, "n_embd", 768);
    int64_t heads = (int64_t)nn_setting(m, "n_head", 12);
    int64_t positions = (int64_t)nn_setting(m, "n_positions", 1024);
    double eps = nn_setting(m, "layer_norm_epsilon", 1e-5);
    int depth = (int)nn_setting(m, "n_layer", 12);

    tc_tensor places = tc_reshape(tc_arange(m.model->ctx, 0, length, 1, TC_I64), 1, length);
    tc_tensor x = tc_add(nn_embedding(m, "wte", ids[0], words, width),
                         nn_embedding(m, "wpe", places, positions, width));
    x = nn_dropout(m, x, nn_setting(m, "embd_pdrop", 0.1));
    for (int i = 0; i < depth; i++) {
        nn block = nn_in(m, "h.%d", i);
        tc_tensor y = nn_layer_norm(block, "ln_1", x, eps);
        x = tc_add(x, gpt2_attention(nn_in(block, "attn"), y, heads));
        y = nn_layer_norm(block, "ln_2", x, eps);
        x = tc_add(x, gpt2_mlp(nn_in(block, "mlp"), y));
    }
    x = nn_layer_norm(m, "ln_f", x, eps);
    tc_tensor table = nn_param(m, "wte.weight", NN_WEIGHT, words, width); /* is the head too */
    logits[0] = nn_end(m, tc_matmul(x, tc_transpose(table, 0, 1)));
}

#endif
