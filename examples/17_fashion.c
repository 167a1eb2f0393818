/* 17_fashion.c - a convolutional network that tells shirts from shoes.
 * Usage: 17_fashion [passes [curve.svg [folder]]]; 8 passes (three minutes of two busy cores) tell
 * 0.9137 of the test images right; folder/tc_fashion.c is then kept.
 *
 * Two convolutions with batch normalization and pooling, dropout, a linear layer; AdamW with a rate
 * that falls along a cosine. Forward pass, gradients, running means and update are one program.
 * What it needs in a step comes in as inputs: which images, and the rate. Its counter of steps,
 * which seeds the dropout, is a parameter like the weights, so nothing is compiled twice.
 * What was learned leaves as one file of C without libraries, which is compiled and loaded and
 * tells the test images (those of the short form: some) as tc does, bit for bit.
 *
 * Data: Fashion-MNIST (Zalando Research, MIT license). Debian: apt install dataset-fashion-mnist
 *
 * Prints loss and test accuracy as it trains, and how many images the exported file tells right;
 * writes the curve of losses as SVG.
 *
 * Build, from the project's root: cc -O2 -I. examples/17_fashion.c -lm -ldl -lpthread */
#define _GNU_SOURCE
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "exported.h"

#define FOLDER "/usr/share/datasets/fashion-mnist/"
enum { SIDE = 28, PIXELS = SIDE * SIDE, TRAIN = 60000, TEST = 10000, BATCH = 100, CLASSES = 10 };
enum { FIRST = 16, SECOND = 32, FLAT = SECOND * (SIDE / 4) * (SIDE / 4), SHORT = 120 };
enum { N_PARAMS = 10, N_MEANS = 4, N_BATCHES = TRAIN / BATCH, WORKSPACE = 1 << 20 };

static unsigned char images[TRAIN * PIXELS], labels[TRAIN];
static unsigned char test_images[TEST * PIXELS], test_labels[TEST];

/* The weights that learn, in one list for the optimizer, and the running means and variances. */
typedef struct network {
    tc_tensor params[N_PARAMS], means[N_MEANS], count;
    int n_params, n_means;
} network;

/* What a forward pass is given, and what it adds: effects on the running means. */
typedef struct pass {
    bool training;
    tc_keys keys;
    tc_tensor effects[N_MEANS];
} pass;

static tc_tensor weight(network *n, double scale, tc_tensor drawn)
{
    return n->params[n->n_params++] = tc_param_from(tc_mul(drawn, scale));
}

static void make_conv(tc_ctx *ctx, network *n, int in, int out)
{
    tc_tensor one = tc_full(ctx, 1, TC_F32, out), zero = tc_full(ctx, 0, TC_F32, out);
    weight(n, sqrt(2.0 / (9 * in)), tc_randn(ctx, n->n_params, TC_F32, out, in, 3, 3));
    weight(n, 1, one);
    weight(n, 1, zero);
    n->means[n->n_means++] = tc_param_from(zero);
    n->means[n->n_means++] = tc_param_from(one);
}

static network make_network(tc_ctx *ctx)
{
    network n = {.count = tc_param(ctx, NULL, TC_U64)};
    make_conv(ctx, &n, 1, FIRST);
    make_conv(ctx, &n, FIRST, SECOND);
    weight(&n, sqrt(1.0 / FLAT), tc_randn(ctx, 100, TC_F32, FLAT, CLASSES));
    weight(&n, 1, tc_full(ctx, 0, TC_F32, CLASSES));
    return n;
}

/* Convolution, pooling, batch normalization, relu. In training the batch's own mean and variance
 * count, and the running ones move a tenth of the way towards them. */
static tc_tensor block(tc_tensor x, const network *n, int i, pass *p)
{
    const tc_tensor *w = n->params + 3 * i, *running = n->means + 2 * i;
    tc_tensor now[2];
    x = tc_conv2d(x, w[0], TC_NONE, &(tc_conv){.padding = {1, 1}});
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}});
    tc_var_mean(x, TC_AXES(0, 2, 3), 1, false, &now[1], &now[0]);
    for (int j = 0; j < 2; j++) {
        p->effects[2 * i + j] = tc_assign(running[j], tc_lerp(running[j], now[j], 0.1));
    }
    return tc_relu(tc_batch_norm(x, running[0], running[1], w[1], w[2], p->training, 1e-5));
}

static tc_tensor forward(tc_tensor pixels, const network *n, pass *p)
{
    tc_tensor x = tc_reshape(tc_div(tc_cast(pixels, TC_F32), 255), -1, 1, SIDE, SIDE);
    x = tc_reshape(block(block(x, n, 0, p), n, 1, p), -1, FLAT);
    x = p->training ? tc_dropout(x, 0.4, tc_next_key(&p->keys)) : x;
    return tc_add(tc_matmul(x, n->params[6]), n->params[7]);
}

/* Inputs: which images, the rate. Output: the loss. */
static tc_program *compile_step(tc_ctx *ctx, const network *n)
{
    pass p = {.training = true, .keys = {tc_fold_in(n->count, 1), 0}};
    tc_tensor which = tc_input(ctx, "which", TC_I32, BATCH);
    tc_tensor rate = tc_input(ctx, "rate", TC_F32), grads[N_PARAMS];
    tc_tensor x = tc_index_select(tc_borrow(ctx, images, TC_U8, TRAIN, PIXELS), 0, which);
    tc_tensor y = tc_index_select(tc_borrow(ctx, labels, TC_U8, TRAIN), 0, which);
    tc_tensor outs[2 + N_MEANS + TC_EFFECTS(N_PARAMS)];
    outs[0] = tc_cross_entropy(forward(x, n, &p), y);
    outs[1] = tc_assign(n->count, tc_add(n->count, 1));
    memcpy(outs + 2, p.effects, sizeof(p.effects));
    int n_effects;
    tc_program *f;
    CHECK_OK(tc_grad(outs[0], n->params, n->n_params, grads), ctx);
    CHECK_OK(tc_adamw(n->params, grads, n->n_params, rate, &(tc_adam_options){.weight_decay = 0.01},
                      outs + 2 + N_MEANS, &n_effects),
             ctx);
    CHECK_OK(tc_compile_fn(TC_TENSORS(which, rate), TC_TENSORS_N(outs, 2 + N_MEANS + n_effects),
                           NULL, &f),
             ctx);
    return f;
}

/* Inputs: images, their labels. Output: how many are told right. */
static tc_program *compile_test(tc_ctx *ctx, const network *n)
{
    pass p = {0};
    tc_tensor x = tc_input(ctx, "images", TC_U8, BATCH, PIXELS);
    tc_tensor y = tc_input(ctx, "labels", TC_U8, BATCH);
    tc_tensor told = tc_argmax(forward(x, n, &p), 1, false);
    tc_program *f;
    CHECK_OK(tc_compile(tc_sum(tc_eq(told, y), TC_ALL, false), &f), ctx);
    return f;
}

static double accuracy(tc_program *test)
{
    int64_t right = 0, now;
    for (int i = 0; i < TEST; i += BATCH) {
        CHECK_OK(tc_run(test,
                        TC_BUFS(TC_BUF(test_images + i * PIXELS, BATCH * PIXELS),
                                TC_BUF(test_labels + i, BATCH)),
                        TC_BUFS(TC_BUF(&now, 1))),
                 test);
        right += now;
    }
    return (double)right / TEST;
}

/* Writes the network as folder/tc_fashion.c, compiles that, and has it tell the first n test
 * images: how many right; -1: its logits are not those of tc. */
static int tell_as_c(tc_ctx *ctx, const network *net, const char *folder, int n)
{
    static char workspace[WORKSPACE];
    pass p = {0};
    char path[512];
    int told = 0;
    tc_program *f;
    tc_tensor image = tc_input(ctx, "image", TC_U8, 1, PIXELS);
    tc_tensor y = forward(image, net, &p);
    snprintf(path, sizeof(path), "%s/tc_fashion.c", folder);
    CHECK_OK(tc_compile(y, &f), y);
    CHECK_OK(tc_export_c(TC_TENSORS(image), TC_TENSORS(y), NULL, path), y);
    exported e = exported_load(folder, "tc_fashion", "");
    e.prepare(workspace);
    for (int i = 0; i < n && told >= 0; i++) {
        float logits[CLASSES], ours[CLASSES];
        int best = 0;
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(test_images + i * PIXELS, PIXELS)),
                        TC_BUFS(TC_BUF(ours, CLASSES))),
                 f);
        e.run(test_images + i * PIXELS, logits, workspace);
        for (int c = 1; c < CLASSES; c++) {
            best = logits[c] > logits[best] ? c : best;
        }
        told = memcmp(logits, ours, sizeof(ours)) ? -1 : told + (best == test_labels[i]);
    }
    dlclose(e.handle);
    tc_program_free(f);
    return told;
}

/* The images of each pass in another order. */
static void shuffle(int *order)
{
    static unsigned state = 1;
    for (int i = 0; i < TRAIN; i++) {
        state = state * 1664525u + 1013904223u;
        int j = (int)((state >> 8) % (unsigned)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* The rest of a gunzipped file behind its header; false: not there, or too short. */
static bool read_file(const char *name, int header, unsigned char *to, int n)
{
    char command[256], skipped[16];
    snprintf(command, sizeof(command), "gzip -dc " FOLDER "%s-ubyte.gz 2>/dev/null", name);
    FILE *file = popen(command, "r");
    bool good = file && fread(skipped, 1, (size_t)header, file) == (size_t)header &&
                fread(to, 1, (size_t)n, file) == (size_t)n;
    return file && pclose(file) == 0 && good;
}

/* Mean losses of tens of steps, as a line from left to right. */
static void write_curve(const char *path, const float *losses, int n)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
    fprintf(file,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='-50 -20 700 360'>\n"
            "<style>text { font: 12px sans-serif } path { fill: none; stroke: #bbb }\n"
            "polyline { fill: none; stroke: #06c; stroke-width: 1.5 }</style>\n"
            "<text x='240' y='335'>loss, %d steps</text>\n",
            n);
    for (int i = 0; i <= 5; i++) {
        fprintf(file, "<path d='M0 %dH640'/><text x='-30' y='%d'>%.1f</text>\n", 300 - 60 * i,
                304 - 60 * i, i * 0.4);
    }
    fprintf(file, "<polyline points='");
    for (int i = 0; i + 10 <= n; i += 10) {
        float sum = 0;
        for (int j = 0; j < 10; j++) {
            sum += losses[i + j];
        }
        fprintf(file, "%.1f,%.1f ", 640.0 * i / n, fmax(0, 300 - 15.0 * (double)sum));
    }
    fprintf(file, "'/>\n</svg>\n");
    fclose(file);
}

int main(int argc, char **argv)
{
    static int order[TRAIN];
    int passes = argc > 1 ? atoi(argv[1]) : 0, n_steps = passes > 0 ? passes * N_BATCHES : SHORT;
    if (!read_file("train-images-idx3", 16, images, sizeof(images)) ||
        !read_file("train-labels-idx1", 8, labels, sizeof(labels)) ||
        !read_file("t10k-images-idx3", 16, test_images, sizeof(test_images)) ||
        !read_file("t10k-labels-idx1", 8, test_labels, sizeof(test_labels))) {
        printf("skipped: no images in " FOLDER " (Debian: apt install dataset-fashion-mnist)\n");
        return 0;
    }
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    network n = make_network(ctx);
    tc_program *step = compile_step(ctx, &n), *test = compile_test(ctx, &n);
    float *losses = calloc((size_t)n_steps, sizeof(float));
    double begin = now_us(), right = 0;
    for (int i = 0; i < n_steps && losses; i++) {
        float rate = (float)(0.002 * (1 + cos(3.14159265 * i / n_steps)));
        int at = i % N_BATCHES;
        if (at == 0) {
            shuffle(order);
        }
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(order + at * BATCH, BATCH), TC_BUF(&rate, 1)),
                        TC_BUFS(TC_BUF(losses + i, 1))),
                 step);
        if (at == N_BATCHES - 1 || i == n_steps - 1) {
            right = accuracy(test);
            printf("  step %5d: loss %.3f, test accuracy %.4f, %.1f s\n", i + 1, (double)losses[i],
                   right, (now_us() - begin) * 1e-6);
        }
    }
    if (argc > 2) {
        write_curve(argv[2], losses, n_steps);
    }
    int n_told = passes > 0 ? TEST : TEST / 20;
    int told = tell_as_c(ctx, &n, argc > 3 ? argv[3] : "/tmp", n_told);
    if (argc < 4) {
        remove("/tmp/tc_fashion.c");
    }
    printf("  as one file of C: %d of %d test images right, logits are %s\n", told, n_told,
           told < 0 ? "NOT tc's" : "tc's");
    free(losses);
    tc_program_free(step);
    tc_program_free(test);
    tc_ctx_free(ctx);
    double least = passes >= 8 ? 0.905 : passes ? 0.85 : 0.80;
    printf("test accuracy %.4f: %s %.3f\n", right, right >= least ? "at least" : "NOT", least);
    return right >= least && told >= least * n_told ? 0 : 1;
}
