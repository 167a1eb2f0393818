/* 27_sentences.c - which sentences mean the same: texts to vectors by MiniLM, in C from end to end.
 * Usage: 27_sentences [FOLDER [sentence ...]].
 *
 * FOLDER has config.json, vocab.txt and model.safetensors as sentence-transformers publishes them,
 * for example all-MiniLM-L6-v2 (Apache 2.0, 90 MB: git clone
 * https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2). The weights are mapped memory and
 * are not copied. A vector is the mean of the network's last values over the words of a text, of
 * length 1; the product of two says how near they are. Without FOLDER a random network of the same
 * kind is taken, which means nothing, but whose vectors are compared with those of PyTorch.
 *
 * Build, from the project's root: cc -O2 -I. examples/27_sentences.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "models/sentences.h"

#include <time.h>

static const char *const usual[] = {
    "A man is eating food.", "Someone is having lunch.", "The cat sits outside.",
    "A kitten waits at the door.", "The stock market fell sharply today.",
    "Share prices dropped."};

enum { USUAL = (int)(sizeof(usual) / sizeof(*usual)), MOST = 64 };

static double now_ms(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void give_up(const sentences *s)
{
    fprintf(stderr, "%s\n", s->error);
    exit(1);
}

/* The nearest other one of each. */
static void print_nearest(const char *const *texts, const float *vectors, int n, int width)
{
    for (int i = 0; i < n; i++) {
        int best = -1;
        float most = -2;
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int d = 0; d < width && j != i; d++) {
                sum += vectors[i * width + d] * vectors[j * width + d];
            }
            if (j != i && sum > most) {
                best = j;
                most = sum;
            }
        }
        printf("  %-40s %s (%.3f)\n", texts[i], best < 0 ? "" : texts[best], (double)most);
    }
}

/* The small network against what transformers made of the same texts. */
static int check(void)
{
    sentences s;
    double worst = 0;
    int n = 0;
    if (!sentences_open(&s, "tests/data/sentences", NULL)) {
        give_up(&s);
    }
    if (!sentences_compare(&s, "tests/data/sentences/expected.txt", &worst, &n)) {
        give_up(&s);
    }
    sentences_close(&s);
    printf("no folder of a network is given (see the head of examples/27_sentences.c)\n"
           "a random one: vectors of %d texts within %.1e of PyTorch's\n", n, worst);
    return worst < 1e-4 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return check();
    }
    sentences s;
    const char *const *texts = argc > 2 ? (const char *const *)argv + 2 : usual;
    int n = argc > 2 ? argc - 2 : USUAL;
    n = n < MOST ? n : MOST;
    double begin = now_ms();
    if (!sentences_open(&s, argv[1], NULL)) {
        give_up(&s);
    }
    float *vectors = calloc((size_t)n * (size_t)s.width, sizeof(float));
    double opened = now_ms();
    if (!vectors || !sentences_encode(&s, texts, n, vectors)) {
        give_up(&s);
    }
    double first = now_ms();
    if (!sentences_encode(&s, texts, n, vectors)) {
        give_up(&s);
    }
    printf("%d texts: opened in %.1f ms, compiled and encoded in %.1f ms, again in %.1f ms\n", n,
           opened - begin, first - opened, now_ms() - first);
    print_nearest(texts, vectors, n, s.width);
    free(vectors);
    sentences_close(&s);
    return 0;
}
