"""tests/data/sentences/make.py - a small random sentence encoder and what transformers makes of texts.

    python3 make.py        (torch, transformers)

Writes what the folder of a sentence-transformers model of this kind has, config.json, vocab.txt and
model.safetensors (in a hundredth of the size), and expected.txt: a text and, on the lines below, its
tokens and its vector, the mean of the hidden values over the tokens, of length 1."""
import json
import os

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["The cat sat on the mat.", "a CAT, sitting; on mats!", "Déjà vu: naïve Ångström façade",
         "it's 3.14 (or so)…", "unbelievable", "zzzqqq 猫 cat", "\tspaces   and\u00a0more ", "",
         "Straße Łódź œuvre Ελλάδα", "e\u0301tude of the day - today's cat is on the mat again"]
WORDS = ("the cat sat on mat a sit ##ting ##s deja vu naive angstrom facade it ' s 3 . 14 ( or so ) … un "
         "##believ ##able , ; ! : z ##z ##q 猫 spaces and more strasse stra ##ße ł ##o ##d ##z œ ##u ##v ##re "
         "ε ##λ ##α ##δ etude of day - today is again # ##again ##y").split()

vocab = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(dict.fromkeys(WORDS))
config = dict(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
              intermediate_size=24, max_position_embeddings=40, type_vocab_size=2, layer_norm_eps=1e-12)
torch.manual_seed(1)
model = transformers.BertModel(transformers.BertConfig(**config)).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        centre = float(name.endswith("LayerNorm.weight"))
        p.copy_(centre + torch.randn_like(p) * (0.1 if "LayerNorm" in name else 0.5))
with open(f"{HERE}/vocab.txt", "w") as file:
    file.write("".join(word + "\n" for word in vocab))
with open(f"{HERE}/config.json", "w") as file:
    json.dump(config, file, indent=2)
from safetensors.torch import save_file
save_file({k: v.contiguous() for k, v in model.state_dict().items() if v.is_floating_point()},
          f"{HERE}/model.safetensors")
from tokenizers import BertWordPieceTokenizer
tokenizer = BertWordPieceTokenizer(f"{HERE}/vocab.txt", lowercase=True)
with open(f"{HERE}/expected.txt", "w") as file:
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        vector = hidden / hidden.norm().clamp_min(1e-12)
        file.write(text + "\n" + " ".join(map(str, ids)) + "\n" +
                   " ".join(f"{v:.9g}" for v in vector.tolist()) + "\n")
