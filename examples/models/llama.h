/* llama.h - a decoder of the llama family (transformers: LlamaForCausalLM): rotated queries and
 * keys, fewer heads of keys than of queries, a gated mlp. */
#ifndef LLAMA_H
#define LLAMA_H

#include "nn.h"

/* Angles [T, width]: position times theta^(-2 i / width), the same in both halves. */
static tc_tensor llama_angles(tc_ctx *ctx, int64_t length, int64_t width, double theta)
{
    tc_tensor i = tc_arange(ctx, 0, width / 2, 1, TC_F32);
    tc_tensor frequency = tc_exp(tc_mul(i, -2 * log(theta) / (double)width));
    tc_tensor at = tc_reshape(tc_arange(ctx, 0, length, 1, TC_F32), length, 1);
    tc_tensor half = tc_mul(at, frequency);
    return tc_cat(TC_TENSORS(half, half), 1);
}

/* Keys and values have a head for several of the queries: q [N, kv_heads, q_heads / kv_heads, T, d]
 * next to k and v [N, kv_heads, 1, T, d] */
static tc_tensor llama_attention(nn m, tc_tensor x, tc_tensor angles, int64_t heads,
                                 int64_t kv_heads)
{
    int64_t width = tc_size(angles, 1), n = tc_size(x, 0), length = tc_size(x, 1);
    tc_tensor cosine = tc_cast(tc_cos(angles), tc_dtype_of(x));
    tc_tensor sine = tc_cast(tc_sin(angles), tc_dtype_of(x));
    tc_tensor q = nn_split_heads(nn_linear(m, "q_proj", x, heads * width, false), heads);
    tc_tensor k = nn_split_heads(nn_linear(m, "k_proj", x, kv_heads * width, false), kv_heads);
    tc_tensor v = nn_split_heads(nn_linear(m, "v_proj", x, kv_heads * width, false), kv_heads);
    q = tc_reshape(tc_rope(q, cosine, sine), n, kv_heads, heads / kv_heads, length, width);
    k = tc_unsqueeze(tc_rope(k, cosine, sine), 2);
    tc_tensor y = tc_scaled_dot_product_attention(q, k, tc_unsqueeze(v, 2), TC_NONE, true, 0);
    y = nn_join_heads(tc_reshape(y, n, heads, length, width));
    return nn_linear(m, "o_proj", y, tc_size(x, 2), false);
}

static tc_tensor llama_mlp(nn m, tc_tensor x, int64_t inner)
{
    tc_tensor gate = tc_silu(nn_linear(m, "gate_proj", x, inner, false));
    tc_tensor up = nn_linear(m, "up_proj", x, inner, false);
    return nn_linear(m, "down_proj", tc_mul(gate, up), tc_size(x, 2), false);
}

/* ids [N, T] to logits [N, T, vocab_size]. Settings have the names of LlamaConfig; the usual ones
 * are a model of 134 million parameters. */
static void llama(nn m, const tc_tensor *ids, tc_tensor *logits)
{
    nn body = nn_in(m, "model");
    int64_t words = (int64_t)nn_setting(m, "vocab_size", 32000);
    int64_t width = (int64_t)nn_setting(m, "hidden_size", 768);
    int64_t inner = (int64_t)nn_setting(m, "intermediate_size", 2048);
    int64_t heads = (int64_t)nn_setting(m, "num_attention_heads", 12);
    int64_t kv_heads = (int64_t)nn_setting(m, "num_key_value_heads", (double)heads);
    double eps = nn_setting(m, "rms_norm_eps", 1e-5);
    int depth = (int)nn_setting(m, "num_hidden_layers", 12);
    tc_tensor angles = llama_angles(m.model->ctx, tc_size(ids[0], 1), width / heads,
                                    nn_setting(m, "rope_theta", 10000));

    tc_tensor x = nn_embedding(body, "embed_tokens", ids[0], words, width);
    for (int i = 0; i < depth; i++) {
        nn layer = nn_in(body, "layers.%d", i);
        tc_tensor y = nn_rms_norm(layer, "input_layernorm", x, eps);
        x = tc_add(x, llama_attention(nn_in(layer, "self_attn"), y, angles, heads, kv_heads));
        y = nn_rms_norm(layer, "post_attention_layernorm", x, eps);
        x = tc_add(x, llama_mlp(nn_in(layer, "mlp"), y, inner));
    }
    x = nn_linear(m, "lm_head", nn_rms_norm(body, "norm", x, eps), words, false);
    logits[0] = nn_end(m, x);
}

#endif
