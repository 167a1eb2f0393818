"""tests/data/sentences/minilm.py - what sentence-transformers makes of texts with the published weights.

    python3 tests/data/sentences/minilm.py        (sentence-transformers; make data)

Writes minilm.txt beside itself: a text and, on the lines below, its tokens and its vector. The last
texts are longer than the 256 tokens that the network is given."""
import os

from sentence_transformers import SentenceTransformer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["A man is eating food.", "Someone is having lunch.", "",
         "Déjà vu: naïve Ångström façade, Łódź & Ελλάδα, ŞİŞLİ", "it's 3.14 (or so)… “quoted” – #1, a@b.c/d_e?",
         "Donaudampfschifffahrtsgesellschaftskapitän pneumonoultramicroscopicsilicovolcanoconiosis",
         "z" * 101 + " is too long a word, " + "y" * 100 + " is not", "東京で猫を見ました。 ガラパゴス 中国的猫，（对吗？） 고양이와 강",
         "Tiếng Việt ở Thành phố Hồ Chí Minh, ẞ ƯƠ",
         "\tспасибо   за\u00a0всё, e\u0301tude 😀 ok ", "The stock market fell sharply today.",
         " ".join(f"{i} sheep jumped over the fence" for i in range(60)),
         "An unbelievably re-hyphenated, semi-colonised; text. " * 30]

model = SentenceTransformer(f"{HERE}/../../../data/minilm", device="cpu")
vectors = model.encode(TEXTS, batch_size=1, normalize_embeddings=True)
with open(f"{HERE}/minilm.txt", "w") as file:
    for text, vector in zip(TEXTS, vectors):
        ids = model.tokenizer(text, truncation=True, max_length=model.max_seq_length)["input_ids"]
        file.write(text + "\n" + " ".join(map(str, ids)) + "\n" +
                   " ".join(f"{v:.7f}" for v in vector.tolist()) + "\n")
