/* 08_digits.c - a network that learns to read handwritten digits: forward pass, gradients and the
 * update of the parameters as one program.
 * Usage: 08_digits [digits.bin].
 *
 * tc_param makes leaves that a program may change, tc_grad adds the gradients of a loss to the same
 * graph, tc_assign says what the parameters are after a run. A training step is then one tc_run: it
 * picks its images by index, writes the loss and changes the parameters in place.
 *
 * Data: "Optical Recognition of Handwritten Digits" (UCI, CC BY 4.0; see data/LICENSE.txt).
 *
 * Prints loss and test accuracy by pass, the time of a step, and whether 1 and 2 threads give the
 * same bits.
 *
 * Build, from the project's root: cc -O2 -I. examples/08_digits.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <math.h>
#include <string.h>

#include "example.h"

enum {
    COUNT = 1797,
    PIXELS = 64,
    TEST = 360, /* images held back; chosen at random */
    TRAIN = COUNT - TEST,
    HIDDEN = 128,
    CLASSES = 10,
    BATCH = 64,
    EPOCHS = 30,
    STEPS = TRAIN / BATCH, /* a pass over the training images leaves out the odd ones */
    N_PARAMS = 4
};

typedef struct digits {
    unsigned char pixels[COUNT * PIXELS], labels[COUNT];
    int order[COUNT]; /* the first TRAIN are for training */
} digits;

/* What a training leaves behind; compared bit for bit. */
typedef struct result {
    float w1[PIXELS * HIDDEN], b1[HIDDEN], w2[HIDDEN * CLASSES], b2[CLASSES];
    float loss;     /* mean of the last pass */
    float accuracy; /* on the test images */
} result;

static unsigned random_next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* In [-1, 1), times the usual scale for that many inputs. */
static void random_fill(float *w, int n, int n_inputs, unsigned *state)
{
    for (int i = 0; i < n; i++) {
        float unit = (float)random_next(state) * (2.0f / 16777216.0f) - 1.0f;
        w[i] = unit * sqrtf(3.0f / (float)n_inputs);
    }
}

static void shuffle(int *order, int n, unsigned *state)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(random_next(state) % (unsigned)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void read_digits(const char *path, digits *d)
{
    FILE *file = fopen(path, "rb");
    unsigned state = 1;
    if (!file || fread(d->pixels, 1, sizeof(d->pixels), file) != sizeof(d->pixels) ||
        fread(d->labels, 1, sizeof(d->labels), file) != sizeof(d->labels)) {
        fprintf(stderr, "%s: not the %d digits\n", path, (int)COUNT);
        exit(1);
    }
    fclose(file);
    for (int i = 0; i < COUNT; i++) {
        d->order[i] = i;
    }
    shuffle(d->order, COUNT, &state);
}

static tc_tensor network(tc_tensor images, const tc_tensor *p)
{
    tc_tensor hidden = tc_relu(tc_add(tc_matmul(tc_div(images, 16), p[0]), p[1]));
    return tc_add(tc_matmul(hidden, p[2]), p[3]);
}

/* One step: p -= rate * d loss / d p. Inputs: which images, the rate. Output: the loss. */
static tc_program *compile_step(tc_tensor images, tc_tensor labels, const tc_tensor *p)
{
    tc_program *f;
    tc_tensor which = tc_input(images.ctx, "which", TC_I32, BATCH);
    tc_tensor rate = tc_input(images.ctx, "rate", TC_F32);
    tc_tensor loss = tc_cross_entropy(network(tc_index_select(images, 0, which), p),
                                      tc_index_select(labels, 0, which));
    tc_tensor grads[N_PARAMS], outs[1 + N_PARAMS] = {loss};
    CHECK_OK(tc_grad(loss, p, N_PARAMS, grads), grads[0]);
    for (int i = 0; i < N_PARAMS; i++) {
        outs[1 + i] = tc_assign(p[i], tc_sub(p[i], tc_mul(rate, grads[i])));
    }
    CHECK_OK(tc_compile_fn(TC_TENSORS(which, rate), (tc_tensors){outs, 1 + N_PARAMS}, NULL, &f),
             loss);
    return f;
}

/* The share of the test images that the network reads right. */
static tc_tensor accuracy(tc_tensor images, tc_tensor labels, const tc_tensor *p, const int *test)
{
    tc_tensor which = tc_copy_in(images.ctx, test, TC_I32, TEST);
    tc_tensor read = tc_argmax(network(tc_index_select(images, 0, which), p), 1, false);
    return tc_mean(tc_eq(read, tc_index_select(labels, 0, which)), TC_ALL, false);
}

/* Mean loss of one pass over the training images. */
static double pass(tc_program *step, int *order, float rate, unsigned *state)
{
    double sum = 0;
    float loss;
    shuffle(order, TRAIN, state);
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(order + i * BATCH, BATCH), TC_BUF(&rate, 1)),
                        TC_BUFS(TC_BUF(&loss, 1))),
                 step);
        sum += (double)loss;
    }
    return sum / STEPS;
}

static void train(const digits *d, int threads, bool print, result *r)
{
    static int order[COUNT];
    tc_options options = {.threads = threads};
    unsigned state = 7;
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, &options)) {
        fprintf(stderr, "no context\n");
        exit(1);
    }
    memset(r, 0, sizeof(*r));
    memcpy(order, d->order, sizeof(order));
    random_fill(r->w1, PIXELS * HIDDEN, PIXELS, &state);
    random_fill(r->w2, HIDDEN * CLASSES, HIDDEN, &state);
    tc_tensor images = tc_borrow(ctx, d->pixels, TC_U8, COUNT, PIXELS);
    tc_tensor labels = tc_borrow(ctx, d->labels, TC_U8, COUNT);
    tc_tensor p[N_PARAMS] = {tc_param(ctx, r->w1, TC_F32, PIXELS, HIDDEN),
                             tc_param(ctx, r->b1, TC_F32, HIDDEN),
                             tc_param(ctx, r->w2, TC_F32, HIDDEN, CLASSES),
                             tc_param(ctx, r->b2, TC_F32, CLASSES)};
    tc_tensor right = accuracy(images, labels, p, d->order + TRAIN);
    tc_program *step = compile_step(images, labels, p);
    CHECK_OK(tc_eval(right), right); /* compiles it; each tc_read computes it anew */
    double begin = now_us();
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        r->loss = (float)pass(step, order, 0.4f, &state);
        CHECK_OK(tc_read(right, &r->accuracy, 1), right);
        if (print && (epoch < 4 || epoch % 5 == 0)) {
            printf("  pass %2d: loss %.4f, test accuracy %.1f %%\n", epoch, (double)r->loss,
                   100.0 * (double)r->accuracy);
        }
    }
    if (print) {
        double us = now_us() - begin;
        printf("%d steps in %.3f s, %.1f us a step (tests included)\n", EPOCHS * STEPS, us * 1e-6,
               us / (EPOCHS * STEPS));
        tc_explain(step, stdout);
    }
    CHECK_OK(tc_read(p[0], r->w1, PIXELS * HIDDEN), p[0]);
    CHECK_OK(tc_read(p[1], r->b1, HIDDEN), p[1]);
    CHECK_OK(tc_read(p[2], r->w2, HIDDEN * CLASSES), p[2]);
    CHECK_OK(tc_read(p[3], r->b2, CLASSES), p[3]);
    tc_program_free(step);
    tc_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    static digits d;
    static result one, two;
    read_digits(argc > 1 ? argv[1] : "examples/data/digits.bin", &d);
    printf("%d images for training, %d for the test; %d-%d-%d, batches of %d\n", (int)TRAIN,
           (int)TEST, (int)PIXELS, (int)HIDDEN, (int)CLASSES, (int)BATCH);
    train(&d, 1, true, &one);
    train(&d, 2, false, &two);
    bool same = !memcmp(&one, &two, sizeof(one)), good = one.accuracy > 0.95f;
    printf("1 and 2 threads: %s\n", same ? "the same bits" : "DIFFERENT bits");
    printf("test accuracy %.1f %%: %s\n", 100.0 * (double)one.accuracy,
           good ? "more than 95 %" : "NOT more than 95 %");
    return same && good ? 0 : 1;
}
