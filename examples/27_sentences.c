/* 27_sentences.c - which sentences mean the same: texts to vectors by MiniLM, in C from end to end.
 * Usage: 27_sentences [FOLDER [sentence ...]].
 *
 * FOLDER has config.json, vocab.txt and model.safetensors as sentence-transformers publishes them.
 * `make data` puts all-MiniLM-L6-v2 (Apache 2.0, 91 MB) into data/minilm, which is also where it is
 * looked for; with it the vectors are compared with those of sentence-transformers. Without it a
 * random network of the same kind is taken, which means nothing, but whose vectors are compared
 * with those of PyTorch.
 * The weights are mapped memory and are not copied. A vector is the mean of the network's last
 * values over the words of a text, of length 1; the product of two says how near they are.
 *
 * Prints a table of similarities with the nearest sentence of each marked, times, and the largest
 * difference from the reference.
 *
 * Build, from the project's root: cc -O2 -I. examples/27_sentences.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "models/sentences.h"

#include <time.h>
#include <unistd.h>

static const char *const usual[] = {"A man is eating food.",
                                    "Someone is having lunch.",
                                    "The cat sits outside.",
                                    "A kitten waits at the door.",
                                    "The stock market fell sharply today.",
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

/* How near each is to each; a star at the nearest other one. */
static void print_products(const char *const *texts, const float *vectors, int n, int width)
{
    for (int i = 0; i < n; i++) {
        float products[MOST] = {0}, most = -2;
        printf("  %-40s", texts[i]);
        for (int j = 0; j < n; j++) {
            for (int d = 0; d < width; d++) {
                products[j] += vectors[i * width + d] * vectors[j * width + d];
            }
            most = j != i && products[j] > most ? products[j] : most;
        }
        for (int j = 0; j < n; j++) {
            printf(" %5.2f%c", (double)products[j], j != i && products[j] == most ? '*' : ' ');
        }
        printf("\n");
    }
}

/* The vectors of texts, the time that they take since `begin`, which was at `from`; products. */
static void tell(sentences *s, const char *const *texts, int n, double begin, const char *from)
{
    float *vectors = calloc((size_t)n * (size_t)s->width, sizeof(float));
    if (!vectors || !sentences_encode(s, texts, n, vectors)) {
        give_up(s);
    }
    double first = now_ms();
    if (!sentences_encode(s, texts, n, vectors)) {
        give_up(s);
    }
    double again = now_ms();
    printf("  %d sentence%s: %.1f ms from %s to the vectors, again in %.1f ms\n", n,
           n == 1 ? "" : "s", first - begin, from, again - first);
    if (n > 1) {
        print_products(texts, vectors, n, s->width);
    }
    free(vectors);
}

/* The network of a folder against what another library made of the texts in a file. */
static int check(sentences *s, const char *path, const char *library)
{
    double worst = 0;
    int n = 0;
    if (!sentences_compare(s, path, SENTENCES_BATCH, &worst, &n)) {
        give_up(s);
    }
    printf("  checked: %d vectors within %.1e of those of %s, 1e-4 allowed: %s\n", n, worst,
           library, worst < 1e-4 ? "ok" : "WRONG");
    return worst < 1e-4 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "data/minilm", *start = "opening the files";
    double begin = now_ms();
    int wrong = 0;
    sentences s;
    if (argc < 2 && access(folder, R_OK)) {
        printf("skipped: no %s (`make data` fetches it); a random network instead\n", folder);
        if (!sentences_open(&s, "tests/data/sentences", NULL)) {
            give_up(&s);
        }
        wrong = check(&s, "tests/data/sentences/expected.txt", "PyTorch");
    } else if (!sentences_open(&s, folder, NULL)) {
        give_up(&s);
    } else if (argc > 2) {
        tell(&s, (const char *const *)argv + 2, argc - 2 < MOST ? argc - 2 : MOST, begin, start);
    } else {
        tell(&s, usual, 1, begin, start);
        tell(&s, usual, USUAL, now_ms(), "a program of another size");
        wrong = argc < 2 && check(&s, "tests/data/sentences/minilm.txt", "sentence-transformers");
    }
    sentences_close(&s);
    return wrong;
}
