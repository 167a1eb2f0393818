/* bert.h - BERT (transformers: BertModel). */
#ifndef BERT_H
#define BERT_H

#include "nn.h"

/* Word 0 is padding: its row is not learnt. */
static tc_tensor bert_words(nn m, tc_tensor ids, int64_t words, int64_t width)
{
    tc_tensor x = nn_embedding(m, "word_embeddings", ids, words, width);
    return m.model->training ? tc_where(tc_unsqueeze(tc_eq(ids, 0), 2), tc_stop_gradient(x), x) : x;
}

/* x + y, then the norm: how each half of a layer ends. */
static tc_tensor bert_end(nn m, tc_tensor x, tc_tensor y, int64_t width)
{
    y = nn_dropout(m, nn_linear(m, "dense", y, width, true),
                   nn_setting(m, "hidden_dropout_prob", 0.1));
    return nn_layer_norm(m, "LayerNorm", tc_add(x, y), nn_setting(m, "layer_norm_eps", 1e-12));
}

static tc_tensor bert_layer(nn m, tc_tensor x, tc_tensor mask, int64_t heads, int64_t inner)
{
    nn self = nn_in(m, "attention.self");
    int64_t width = tc_size(x, 2);
    tc_tensor q = nn_split_heads(nn_linear(self, "query", x, width, true), heads);
    tc_tensor k = nn_split_heads(nn_linear(self, "key", x, width, true), heads);
    tc_tensor v = nn_split_heads(nn_linear(self, "value", x, width, true), heads);
    tc_tensor y = nn_join_heads(
        nn_attention(m, q, k, v, mask, false, nn_setting(m, "attention_probs_dropout_prob", 0.1)));
    x = bert_end(nn_in(m, "attention.output"), x, y, width);
    y = tc_gelu(nn_linear(m, "intermediate.dense", x, inner, true));
    return bert_end(nn_in(m, "output"), x, y, width);
}

/* ids, token types and mask (0: padding), all [N, T], to hidden [N, T, width] and pooled
 * [N, width]. Settings have the names of BertConfig. */
static void bert(nn m, const tc_tensor *in, tc_tensor *out)
{
    nn e = nn_in(m, "embeddings");
    int64_t width = (int64_t)nn_setting(m, "hidden_size", 768), length = tc_size(in[0], 1);
    int64_t words = (int64_t)nn_setting(m, "vocab_size", 30522);
    int64_t positions = (int64_t)nn_setting(m, "max_position_embeddings", 512);
    int64_t types = (int64_t)nn_setting(m, "type_vocab_size", 2);
    int64_t heads = (int64_t)nn_setting(m, "num_attention_heads", 12);
    int64_t inner = (int64_t)nn_setting(m, "intermediate_size", 3072);
    int depth = (int)nn_setting(m, "num_hidden_layers", 12);

    tc_tensor x = bert_words(e, in[0], words, width);
    x = tc_add(x, nn_embedding(e, "token_type_embeddings", in[1], types, width));
    tc_tensor places = tc_reshape(tc_arange(m.model->ctx, 0, length, 1, TC_I64), 1, length);
    x = tc_add(x, nn_embedding(e, "position_embeddings", places, positions, width));
    x = nn_layer_norm(e, "LayerNorm", x, nn_setting(m, "layer_norm_eps", 1e-12));
    x = nn_dropout(m, x, nn_setting(m, "hidden_dropout_prob", 0.1));

    tc_tensor mask = tc_reshape(tc_ne(in[2], 0), tc_size(in[2], 0), 1, 1, length);
    for (int i = 0; i < depth; i++) {
        x = bert_layer(nn_in(m, "encoder.layer.%d", i), x, mask, heads, inner);
    }
    tc_tensor first = tc_squeeze(tc_slice(x, 1, 0, 1, 1), 1);
    out[0] = nn_end(m, x);
    out[1] = tc_tanh(nn_linear(m, "pooler.dense", first, width, true));
}

#endif
