/* models.h - the networks of this folder by their names. A new one is a file and a row here. */
#ifndef MODELS_H
#define MODELS_H

#include "alexnet.h"
#include "bert.h"
#include "gpt2.h"
#include "llama.h"
#include "mobilenet.h"
#include "resnet.h"
#include "squeezenet.h"
#include "vgg.h"
#include "vit.h"

enum { NN_INPUTS = 3, NN_OUTPUTS = 2 };

typedef struct nn_network {
    const char *name;
    void (*build)(nn m, const tc_tensor *inputs, tc_tensor *outputs);
    const char *preset; /* its settings, where they are not the file's usual ones */
    const char *inputs[NN_INPUTS], *outputs[NN_OUTPUTS];
} nn_network;

#define NN_IMAGES {"x"}, {"out"}
#define NN_IDS {"input_ids"}, {"out"}
#define NN_TOKENS {"input_ids", "token_type_ids", "attention_mask"}, {"hidden", "pooler"}

static const nn_network nn_networks[] = {
    {"resnet18", resnet, "bottleneck=0 layers=2,2,2,2", NN_IMAGES},
    {"resnet50", resnet, "layers=3,4,6,3", NN_IMAGES},
    {"resnext50_32x4d", resnet, "layers=3,4,6,3 groups=32 width_per_group=4", NN_IMAGES},
    {"resnext101_32x8d", resnet, "layers=3,4,23,3 groups=32 width_per_group=8", NN_IMAGES},
    {"alexnet", alexnet, "", NN_IMAGES},
    {"vgg16", vgg, "", NN_IMAGES},
    {"squeezenet1_1", squeezenet, "", NN_IMAGES},
    {"mobilenet_v2", mobilenet_v2, "", NN_IMAGES},
    {"mnasnet1_0", mnasnet, "", NN_IMAGES},
    {"vit_tiny_patch16_224", vit, "embed_dim=192 num_heads=3", NN_IMAGES},
    {"vit_base_patch16_224", vit, "", NN_IMAGES},
    {"bert", bert, "", NN_TOKENS},
    {"bert_base", bert, "", NN_TOKENS},
    {"bert_small", bert,
     "hidden_size=512 num_hidden_layers=4 num_attention_heads=8 "
     "intermediate_size=2048",
     NN_TOKENS},
    {"bert_minilm_l6", bert,
     "hidden_size=384 num_hidden_layers=6 num_attention_heads=12 "
     "intermediate_size=1536",
     NN_TOKENS},
    {"gpt2", gpt2, "", NN_IDS},
    {"llama", llama, "", NN_IDS},
};

/* NULL: there is none of this name. */
static inline const nn_network *nn_find(const char *name)
{
    for (size_t i = 0; i < sizeof(nn_networks) / sizeof(*nn_networks); i++) {
        if (!strcmp(nn_networks[i].name, name)) {
            return &nn_networks[i];
        }
    }
    return NULL;
}

#endif
