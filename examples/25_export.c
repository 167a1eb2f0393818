/* 25_export.c - a network that learns to read digits and leaves as one file of C.
 * Usage: 25_export [digits.bin [folder]]; folder/tc_reader.c is then kept.
 *
 * tc trains a small convolutional network, then tc_export_c writes it, weights and all, as a C99
 * file without libraries, which any compiler takes: here `cc`. What that makes is loaded and reads
 * the images that were held back. Its answers are tc's, bit for bit.
 *
 * Data: "Optical Recognition of Handwritten Digits" (UCI, CC BY 4.0; see data/LICENSE.txt).
 *
 * Prints loss, time and test accuracy of the network, the time of an image by tc and by the
 * compiled file, and that both give the same bits.
 *
 * Build, from the project's root: cc -O2 -I. examples/25_export.c -lm -ldl -lpthread */
#define _GNU_SOURCE
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "exported.h"

enum { COUNT = 1797, SIDE = 8, PIXELS = SIDE * SIDE, TEST = 360, TRAIN = COUNT - TEST };
enum { BATCH = 64, PASSES = 20, CHANNELS = 16, FLAT = 8 * CHANNELS, CLASSES = 10, N_PARAMS = 6 };

static unsigned char pixels[COUNT * PIXELS], labels[COUNT];
static int order[COUNT]; /* the first TRAIN are for training */

static unsigned random_next(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void shuffle(int *list, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(random_next() % (unsigned)(i + 1)), t = list[i];
        list[i] = list[j];
        list[j] = t;
    }
}

static void read_digits(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fread(pixels, 1, sizeof(pixels), file) != sizeof(pixels) ||
        fread(labels, 1, sizeof(labels), file) != sizeof(labels)) {
        fprintf(stderr, "%s: not the %d digits\n", path, (int)COUNT);
        exit(1);
    }
    fclose(file);
    for (int i = 0; i < COUNT; i++) {
        order[i] = i;
    }
    shuffle(order, COUNT);
}

/* ---- the network ---- */

static tc_tensor weight(tc_ctx *ctx, int stream, double scale, int out, int in, int kernel)
{
    return tc_param_from(tc_mul(tc_randn(ctx, stream, TC_F32, out, in, kernel, kernel), scale));
}

static void make_network(tc_ctx *ctx, tc_tensor *p)
{
    p[0] = weight(ctx, 1, 0.4, CHANNELS, 1, 3);
    p[1] = weight(ctx, 2, 0.1, 2 * CHANNELS, CHANNELS, 3);
    p[2] = tc_param_from(tc_mul(tc_randn(ctx, 3, TC_F32, FLAT, CLASSES), 0.1));
    p[3] = tc_param(ctx, NULL, TC_F32, CHANNELS);
    p[4] = tc_param(ctx, NULL, TC_F32, 2 * CHANNELS);
    p[5] = tc_param(ctx, NULL, TC_F32, CLASSES);
}

/* Images [n, 64] of 0 to 16 to logits [n, 10]. */
static tc_tensor network(tc_tensor images, const tc_tensor *p)
{
    tc_tensor x = tc_reshape(tc_div(tc_cast(images, TC_F32), 16), -1, 1, SIDE, SIDE);
    x = tc_relu(tc_conv2d(x, p[0], p[3], &(tc_conv){.padding = {1, 1}}));
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}});
    x = tc_relu(tc_conv2d(x, p[1], p[4], &(tc_conv){.padding = {1, 1}}));
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}});
    return tc_add(tc_matmul(tc_reshape(x, -1, FLAT), p[2]), p[5]);
}

static void train(tc_ctx *ctx, const tc_tensor *p)
{
    tc_program *f;
    int n_effects;
    tc_tensor which = tc_input(ctx, "which", TC_I32, BATCH), grads[N_PARAMS];
    tc_tensor x = tc_index_select(tc_borrow(ctx, pixels, TC_U8, COUNT, PIXELS), 0, which);
    tc_tensor y = tc_index_select(tc_borrow(ctx, labels, TC_U8, COUNT), 0, which);
    tc_tensor outs[1 + TC_EFFECTS(N_PARAMS)] = {tc_cross_entropy(network(x, p), y)};
    CHECK_OK(tc_grad(outs[0], p, N_PARAMS, grads), ctx);
    CHECK_OK(tc_adam(p, grads, N_PARAMS, 0.003, NULL, outs + 1, &n_effects), ctx);
    CHECK_OK(tc_compile_fn(TC_TENSORS(which), TC_TENSORS_N(outs, 1 + n_effects), NULL, &f), ctx);
    float loss = 0;
    double begin = now_us();
    for (int pass = 0; pass < PASSES; pass++) {
        shuffle(order, TRAIN);
        for (int i = 0; i + BATCH <= TRAIN; i += BATCH) {
            CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(order + i, BATCH)), TC_BUFS(TC_BUF(&loss, 1))), f);
        }
    }
    printf("  %d passes in %.2f s, last loss %.4f\n", (int)PASSES, (now_us() - begin) * 1e-6,
           (double)loss);
    tc_program_free(f);
}

/* ---- the file ---- */

/* How many of the images that were held back it reads right; false: its logits are not tc's. */
static bool compare(tc_program *f, const exported *r, void *workspace, int *right)
{
    bool same = true;
    *right = 0;
    r->prepare(workspace);
    for (int i = TRAIN; i < COUNT; i++) {
        unsigned char *image = pixels + order[i] * PIXELS;
        float logits[CLASSES], read[CLASSES];
        int best = 0;
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(image, PIXELS)), TC_BUFS(TC_BUF(logits, CLASSES))), f);
        r->run(image, read, workspace);
        same = same && !memcmp(logits, read, sizeof(logits));
        for (int c = 1; c < CLASSES; c++) {
            best = read[c] > read[best] ? c : best;
        }
        *right += best == labels[order[i]];
    }
    return same;
}

int main(int argc, char **argv)
{
    static char workspace[1 << 20];
    const char *folder = argc > 2 ? argv[2] : "/tmp";
    static const char *const flags[] = {"", "-march=native"};
    char path[256];
    tc_ctx *ctx;
    tc_program *f;
    tc_tensor p[N_PARAMS];
    read_digits(argc > 1 ? argv[1] : "examples/data/digits.bin");
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    make_network(ctx, p);
    train(ctx, p);

    tc_tensor image = tc_input(ctx, "image", TC_U8, 1, PIXELS), y = network(image, p);
    CHECK_OK(tc_compile(y, &f), y);
    snprintf(path, sizeof(path), "%s/tc_reader.c", folder);
    CHECK_OK(tc_export_c(TC_TENSORS(image), TC_TENSORS(y), NULL, path), y);
    bool same = true;
    int right;
    double us;
    float logits[CLASSES];
    BEST_US(us,
            CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(pixels, PIXELS)), TC_BUFS(TC_BUF(logits, CLASSES))),
                     f));
    printf("  an image by tc: %.1f us\n", us);
    for (int i = 0; i < 2; i++) {
        exported r = exported_load(folder, "tc_reader", flags[i]);
        same = compare(f, &r, workspace, &right) && same;
        BEST_US(us, r.run(pixels, logits, workspace));
        printf("  by %s, compiled with cc -O2 %s: %.1f us\n", path, flags[i], us);
        dlclose(r.handle);
    }
    bool good = right >= TEST * 97 / 100;
    printf("  test accuracy of the file %.1f %%: %s 97 %%; logits are %s\n", 100.0 * right / TEST,
           good ? "at least" : "NOT", same ? "tc's" : "NOT tc's");
    if (argc < 3) {
        remove(path);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return same && good ? 0 : 1;
}
