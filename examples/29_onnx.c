/* 29_onnx.c - another author's network: what kind of file is this? By Magika, as an ONNX model.
 * Usage: 29_onnx [FOLDER [file ...]].
 *
 * FOLDER has model.onnx and config.min.json as the PyPI package magika (Google, Apache 2.0) has
 * them in magika/models/standard_v3_3; `make data` puts them into data/magika, which is also where
 * they are looked for. Without them nothing is read, and the example says so. tc_onnx_load makes
 * tensors of the model, batch size and all; one program then names a file from its first and last
 * 1,024 bytes.
 *
 * Prints each file with its label and score.
 *
 * Build, from the project's root: cc -O2 -I. examples/29_onnx.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc_onnx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 1024, BLOCK = 4096, PADDING = 256, LABELS = 214, FILES = 16 };

static char labels[LABELS][32];

static void check(tc_status status, const char *text)
{
    if (status != TC_OK) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
}

/* The texts of the list "target_labels_space" of the configuration. */
static bool read_labels(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    int count = 0;
    if (file) {
        fclose(file);
    }
    text[n] = 0;
    const char *at = strstr(text, "\"target_labels_space\":[");
    for (at = at ? strchr(at, '[') + 1 : ""; *at == '"' && count < LABELS; count++) {
        size_t length = strcspn(at + 1, "\"");
        snprintf(labels[count], sizeof(labels[count]), "%.*s", (int)length, at + 1);
        at += length + 2;
        at += *at == ',';
    }
    return count == LABELS;
}

/* Bytes of the beginning and of the end, without white space around them; padding fills up. */
static bool read_ends(const char *path, int32_t *bytes)
{
    static unsigned char begin[BLOCK], end[BLOCK];
    FILE *file = fopen(path, "rb");
    if (!file) {
        return false;
    }
    long n = (long)fread(begin, 1, BLOCK, file), first = 0, last;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fseek(file, size > BLOCK ? size - BLOCK : 0, SEEK_SET);
    last = (long)fread(end, 1, BLOCK, file);
    fclose(file);
    while (first < n && isspace(begin[first])) {
        first++;
    }
    while (last > 0 && isspace(end[last - 1])) {
        last--;
    }
    n = size <= BLOCK ? last : n; /* a short file is stripped on both sides */
    for (int i = 0; i < SIDE; i++) {
        bytes[i] = first + i < n ? begin[first + i] : PADDING;
        bytes[2 * SIDE - 1 - i] = last - 1 - i >= (size <= BLOCK ? first : 0) ? end[last - 1 - i]
                                                                              : PADDING;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const char *const own[] = {"examples/29_onnx.c", "README.md", "Makefile",
                                      "tools/lint.sh", "examples/11_cplusplus.cc"};
    static const char *const expected[] = {"c", "markdown", "makefile", "shell", "cpp"};
    static int32_t bytes[FILES][2 * SIDE];
    static float scores[FILES][LABELS];
    const char *folder = argc > 1 ? argv[1] : "data/magika";
    const char *const *files = argc > 2 ? (const char *const *)argv + 2 : own;
    int n = argc > 2 ? argc - 2 : (int)(sizeof(own) / sizeof(*own)), wrong = 0;
    char model_path[512], labels_path[512];
    snprintf(model_path, sizeof(model_path), "%s/model.onnx", folder);
    snprintf(labels_path, sizeof(labels_path), "%s/config.min.json", folder);
    if (access(model_path, R_OK)) {
        printf("%s is not there (make data fetches it): nothing is read\n", model_path);
        return 0;
    }
    n = n < FILES ? n : FILES;
    tc_ctx *ctx = NULL;
    check(tc_ctx_make(&ctx, NULL), "no memory");
    tc_onnx_model *model = NULL;
    tc_onnx_options options = {
        .inputs = (const tc_onnx_input[]){{"bytes", 2, (const int64_t[]){n, 2 * SIDE}, NULL}},
        .n_inputs = 1,
    };
    check(tc_onnx_load(ctx, model_path, &options, &model), tc_error(ctx));
    tc_program *f = NULL;
    check(tc_compile_fn(TC_TENSORS_N(model->inputs, model->n_inputs),
                        TC_TENSORS_N(model->outputs, model->n_outputs), NULL, &f),
          tc_error(ctx));
    for (int i = 0; i < n; i++) {
        if (!read_ends(files[i], bytes[i])) {
            fprintf(stderr, "%s cannot be read\n", files[i]);
            return 1;
        }
    }
    check(tc_run(f, TC_BUFS(TC_BUF(bytes[0], (int64_t)n * 2 * SIDE)),
                 TC_BUFS(TC_BUF(scores[0], (int64_t)n * LABELS))),
          tc_error(f));
    if (!read_labels(labels_path)) {
        fprintf(stderr, "%s has no list of %d labels\n", labels_path, LABELS);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int j = 1; j < LABELS; j++) {
            best = scores[i][j] > scores[i][best] ? j : best;
        }
        printf("%-28s %-10s %5.1f %%\n", files[i], labels[best], 100 * (double)scores[i][best]);
        wrong += argc <= 2 && strcmp(labels[best], expected[i]) != 0;
    }
    tc_program_free(f);
    tc_onnx_free(model);
    tc_ctx_free(ctx);
    printf(wrong ? "%d of them wrong\n" : "all as expected\n", wrong);
    return wrong != 0;
}
