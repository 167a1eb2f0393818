/* sentences.h - texts as vectors, by networks of sentence-transformers that are a BERT; the
 * mean over a text's words is taken (all-MiniLM-L6-v2 and its like).
 *
 *     sentences s;
 *     if (sentences_open(&s, "all-MiniLM-L6-v2", NULL) &&
 *         sentences_encode(&s, (const char *[]){"a text", "another"}, 2, vectors)) ...
 *
 * A function that fails returns false and tells why in s.error; the caller closes s either way.
 * A text alone is a batch of 1, others are filled up to 8; their words to a multiple of 16. Each
 * such size is a program, which is made when first needed. */
#ifndef SENTENCES_H
#define SENTENCES_H

#include "bert.h"
#include "wordpiece.h"

enum {
    SENTENCES_BATCH = 8,
    SENTENCES_STEP = 16,
    SENTENCES_WORDS = 256,
    SENTENCES_PROGRAMS = SENTENCES_WORDS / SENTENCES_STEP
};

typedef struct sentences {
    tc_ctx *ctx;
    nn_model model;
    wp_words words;
    char settings[256], error[512];
    int width, most;                             /* of a vector; words of a text */
    tc_program *programs[2][SENTENCES_PROGRAMS]; /* of a text alone, of a batch; by its words */
} sentences;

static inline bool sentences_fail(sentences *s, const char *what, const char *why)
{
    snprintf(s->error, sizeof(s->error), "%.200s: %.290s", what, why);
    return false;
}

/* The numbers that a BERT asks for, of config.json, as settings. */
static inline bool sentences_configure(sentences *s, const char *path)
{
    static const char *const names[] = {"hidden_size",       "vocab_size",
                                        "num_hidden_layers", "num_attention_heads",
                                        "intermediate_size", "max_position_embeddings",
                                        "type_vocab_size",   "layer_norm_eps"};
    char text[4096] = "", *end = s->settings;
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[n] = 0;
    if (file) {
        fclose(file);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char quoted[64];
        snprintf(quoted, sizeof(quoted), "\"%s\":", names[i]);
        const char *at = strstr(text, quoted);
        if (!at) {
            return sentences_fail(s, path,
                                  n ? "it is no configuration of a BERT" : "it cannot be read");
        }
        double value = strtod(at + strlen(quoted), NULL);
        end += snprintf(end, (size_t)(s->settings + sizeof(s->settings) - end), "%s=%g ", names[i],
                        value);
        s->width = i == 0 ? (int)value : s->width;
        s->most = i == 5 && value < SENTENCES_WORDS ? (int)value : s->most;
    }
    return true;
}

/* options: of the context, or NULL. */
static inline bool sentences_open(sentences *s, const char *folder, const tc_options *options)
{
    char path[1024];
    memset(s, 0, sizeof(*s));
    s->most = SENTENCES_WORDS;
    if (tc_ctx_make(&s->ctx, options)) {
        return sentences_fail(s, folder, "no context");
    }
    snprintf(path, sizeof(path), "%s/config.json", folder);
    if (!sentences_configure(s, path)) {
        return false;
    }
    snprintf(path, sizeof(path), "%s/vocab.txt", folder);
    if (!wp_open(&s->words, path)) {
        return sentences_fail(s, path, "it is no list of words");
    }
    s->model = (nn_model){.ctx = s->ctx, .settings = s->settings};
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    if (tc_file_open(s->ctx, path, &s->model.file)) {
        return sentences_fail(s, path, tc_error(s->ctx));
    }
    return true;
}

static inline void sentences_close(sentences *s)
{
    for (int i = 0; i < SENTENCES_PROGRAMS; i++) {
        tc_program_free(s->programs[0][i]);
        tc_program_free(s->programs[1][i]);
    }
    nn_free(&s->model);
    tc_file_close(s->model.file);
    wp_close(&s->words);
    tc_ctx_free(s->ctx);
}

/* The mean over the words that the mask shows, of length 1. */
static inline tc_tensor sentences_mean(tc_tensor hidden, tc_tensor mask)
{
    tc_tensor shown = tc_unsqueeze(tc_cast(mask, TC_F32), 2);
    tc_tensor sum = tc_sum(tc_mul(hidden, shown), TC_AXES(1), false);
    tc_tensor mean = tc_div(sum, tc_sum(shown, TC_AXES(1), false));
    tc_tensor length = tc_sqrt(tc_sum(tc_square(mean), TC_AXES(1), true));
    return tc_div(mean, tc_maximum(length, 1e-12));
}

static inline tc_program *sentences_program(sentences *s, int batch, int length)
{
    tc_program **f = &s->programs[batch > 1][(length - 1) / SENTENCES_STEP];
    if (!*f) {
        tc_tensor ids = tc_input(s->ctx, "ids", TC_I64, batch, length);
        tc_tensor mask = tc_input(s->ctx, "mask", TC_I64, batch, length), out[2];
        bert(nn_top(&s->model), (tc_tensor[]){ids, tc_mul(ids, 0), mask}, out);
        tc_tensor y = sentences_mean(out[0], mask);
        if (*nn_error(&s->model) || tc_compile_fn(TC_TENSORS(ids, mask), TC_TENSORS(y), NULL, f)) {
            sentences_fail(s, "the network", nn_error(&s->model));
        }
    }
    return *f;
}

/* The vectors [n, width] of up to SENTENCES_BATCH texts. */
static inline bool sentences_batch(sentences *s, const char *const *texts, int n, float *vectors)
{
    int64_t rows[SENTENCES_BATCH][SENTENCES_WORDS], counts[SENTENCES_BATCH] = {0}, longest = 1;
    for (int i = 0; i < n; i++) {
        counts[i] = wp_encode(&s->words, texts[i], rows[i], s->most);
        longest = counts[i] > longest ? counts[i] : longest;
    }
    int length = (int)((longest + SENTENCES_STEP - 1) / SENTENCES_STEP) * SENTENCES_STEP;
    length = length < s->most ? length : s->most;
    int batch = n > 1 ? SENTENCES_BATCH : 1;
    size_t all = (size_t)(batch * length);
    int64_t *ids = calloc(2 * all, sizeof(*ids)), *mask = ids + all;
    float *out = malloc(sizeof(*out) * (size_t)(batch * s->width));
    tc_program *f = ids && out ? sentences_program(s, batch, length) : NULL;
    for (int i = 0; i < batch && f; i++) {
        for (int t = 0; t < length; t++) { /* a row that no text has shows its first word */
            ids[i * length + t] = t < counts[i] ? rows[i][t] : 0;
            mask[i * length + t] = t < counts[i] || t == 0;
        }
    }
    bool good = f && tc_run(f, TC_BUFS(TC_BUF(ids, all), TC_BUF(mask, all)),
                            TC_BUFS(TC_BUF(out, batch * s->width))) == TC_OK;
    if (good) {
        memcpy(vectors, out, sizeof(*out) * (size_t)(n * s->width));
    } else if (!*s->error) {
        sentences_fail(s, "a run", f ? tc_error(f) : "out of memory");
    }
    free(ids);
    free(out);
    return good;
}

/* The vectors [n, width] of n texts in UTF-8. */
static inline bool sentences_encode(sentences *s, const char *const *texts, int n, float *vectors)
{
    bool good = true;
    for (int i = 0; i < n && good; i += SENTENCES_BATCH) {
        int now = n - i < SENTENCES_BATCH ? n - i : SENTENCES_BATCH;
        good = sentences_batch(s, texts + i, now, vectors + (size_t)i * (size_t)s->width);
    }
    return good;
}

/* What a file of expected vectors has of a text: a line each. */
typedef struct sentences_entry {
    char text[4096], ids[4096], numbers[16384];
} sentences_entry;

/* Reads the next one; false: the file ends, or (s->error) the text is cut into other words. */
static inline bool sentences_read(sentences *s, FILE *file, sentences_entry *e)
{
    int64_t ids[SENTENCES_WORDS];
    char *at = e->ids;
    if (!fgets(e->text, sizeof(e->text), file) || !fgets(e->ids, sizeof(e->ids), file) ||
        !fgets(e->numbers, sizeof(e->numbers), file)) {
        return false;
    }
    e->text[strcspn(e->text, "\n")] = 0;
    int count = wp_encode(&s->words, e->text, ids, s->most);
    bool same = true;
    for (int i = 0; i < count && same; i++) {
        same = strtol(at, &at, 10) == ids[i];
    }
    return (same && *at == '\n') || sentences_fail(s, e->text, "is cut into other words");
}

/* The largest difference between a number of the vectors of n entries and what is written there. */
static inline bool sentences_differ(sentences *s, const sentences_entry *entries, int n,
                                    double *worst)
{
    const char *texts[SENTENCES_BATCH];
    float *vectors = malloc(sizeof(*vectors) * (size_t)((n + 1) * s->width));
    for (int i = 0; i < n; i++) {
        texts[i] = entries[i].text;
    }
    bool good = vectors && sentences_encode(s, texts, n, vectors);
    for (int i = 0; i < n && good; i++) {
        const char *at = entries[i].numbers;
        for (int d = 0; d < s->width; d++) {
            char *behind;
            double off = fabs((double)vectors[i * s->width + d] - strtod(at, &behind));
            *worst = fmax(*worst, isnan(off) ? INFINITY : off);
            at = behind;
        }
    }
    free(vectors);
    return good;
}

/* Compares with a file of texts, and on the two lines below each its words' numbers and its vector,
 * at_once (up to SENTENCES_BATCH) texts a call: the largest difference of a number of a vector, and
 * how many texts. False: a text is cut into other words, or something cannot be read. */
static inline bool sentences_compare(sentences *s, const char *path, int at_once, double *worst,
                                     int *n)
{
    sentences_entry *entries = malloc(sizeof(*entries) * SENTENCES_BATCH);
    FILE *file = fopen(path, "r");
    bool good = entries && file;
    for (int many = at_once; good && many == at_once; *n += many) {
        for (many = 0; many < at_once && sentences_read(s, file, &entries[many]);) {
            many++;
        }
        good = !*s->error && sentences_differ(s, entries, many, worst);
    }
    if (good && !*n) {
        good = sentences_fail(s, path, "it has no texts");
    } else if (!good && !*s->error) {
        sentences_fail(s, path, "it cannot be read");
    }
    if (file) {
        fclose(file);
    }
    free(entries);
    return good;
}

#endif
