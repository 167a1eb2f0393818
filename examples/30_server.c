/* 30_server.c - a server: requests of any batch and any length, from several threads, and no
 * compile after the warm-up.
 *
 * The model is a C function; tc_jit compiles it for the signatures that come. Sizes that vary
 * become symbols, so a handful of warm-up signatures give a program for all sizes. Then the
 * stance is set to FAIL: a signature that would need a compile is an error that says what
 * differs, not a pause.
 *
 * Prints the time of a request, the specializations with their runs, and the error of a signature
 * that was not warmed.
 *
 * Build, from the project's root: cc -O2 -I. examples/30_server.c -lm -ldl -lpthread */
#define TC_DYNAMIC_SHAPES /* before every include of tc.h */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <pthread.h>

#include "example.h"

enum { WORDS = 500, WIDTH = 32, CLASSES = 4, MOST_TEXTS = 16, MOST_WORDS = 64, THREADS = 4 };
enum { REQUESTS = 250 }; /* of each thread */

typedef struct model {
    tc_tensor vectors, weight; /* shared by all specializations */
} model;

/* words [batch, length] -> probabilities [batch, CLASSES]; static integer 0: whether to log them */
static tc_status classify(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                          void *user)
{
    (void)n_in, (void)n_out;
    const model *m = user;
    int64_t batch = tc_size(in[0], 0), length = tc_size(in[0], 1);
    tc_tensor rows = tc_index_select(m->vectors, 0, tc_reshape(in[0], -1));
    tc_tensor mean = tc_mean(tc_reshape(rows, batch, length, WIDTH), TC_AXES(1), false);
    tc_tensor scores = tc_matmul(tc_tanh(mean), m->weight);
    out[0] = tc_jit_static(ctx, 0) ? tc_log_softmax(scores, -1) : tc_softmax(scores, -1);
    return TC_OK;
}

static float vectors[WORDS * WIDTH], weight[WIDTH * CLASSES];

typedef struct client {
    pthread_t thread;
    tc_jit *fn;
    unsigned state;
    double worst; /* difference from plain C */
    int failures;
} client;

static double check(const int *words, int batch, int length, const float *out)
{
    double worst = 0;
    for (int b = 0; b < batch; b++) {
        double e[CLASSES], sum = 0;
        for (int c = 0; c < CLASSES; c++) {
            double score = 0;
            for (int w = 0; w < WIDTH; w++) {
                double mean = 0;
                for (int i = 0; i < length; i++) {
                    mean += vectors[words[b * length + i] * WIDTH + w];
                }
                score += tanh(mean / length) * weight[w * CLASSES + c];
            }
            sum += e[c] = exp(score);
        }
        for (int c = 0; c < CLASSES; c++) {
            worst = fmax(worst, fabs(out[b * CLASSES + c] - e[c] / sum));
        }
    }
    return worst;
}

static void *ask(void *arg)
{
    client *c = arg;
    int words[MOST_TEXTS * MOST_WORDS];
    float out[MOST_TEXTS * CLASSES];
    for (int i = 0; i < REQUESTS; i++) {
        c->state = c->state * 1664525u + 1013904223u;
        int batch = 1 + (int)(c->state >> 10) % MOST_TEXTS;
        int length = 1 + (int)(c->state >> 20) % MOST_WORDS;
        for (int k = 0; k < batch * length; k++) {
            words[k] = (int)(c->state >> 8) % 97 * (k + 1) % WORDS;
        }
        if (tc_jit_run(c->fn, TC_STATICS(0), TC_BUFS(TC_BUF_ND(words, batch, length)),
                       TC_BUFS(TC_BUF_ND(out, batch, CLASSES)))) {
            c->failures++;
        } else if (i % 10 == 0) {
            c->worst = fmax(c->worst, check(words, batch, length, out));
        }
    }
    return NULL;
}

int main(void)
{
    static client clients[THREADS];
    model m;
    tc_jit *fn;
    for (int i = 0; i < WORDS * WIDTH; i++) {
        vectors[i] = (float)((unsigned)i * 2654435761u >> 16) * 0x1p-15f - 1;
    }
    for (int i = 0; i < WIDTH * CLASSES; i++) {
        weight[i] = (float)((unsigned)i * 40503u >> 4 & 255) * 0x1p-7f - 1;
    }
    if (tc_jit_make(classify, &m, (&(tc_jit_options){.name = "classify"}), &fn)) {
        return 1;
    }
    m.vectors = tc_borrow(tc_jit_ctx(fn), vectors, TC_F32, WORDS, WIDTH);
    m.weight = tc_borrow(tc_jit_ctx(fn), weight, TC_F32, WIDTH, CLASSES);

    int *none = NULL;
    tc_jit_signature warm[] = {{TC_STATICS(0), TC_BUFS(TC_BUF_ND(none, 1, 16)), TC_OK},
                               {TC_STATICS(0), TC_BUFS(TC_BUF_ND(none, 4, 50)), TC_OK}};
    CHECK_OK(tc_jit_warm(fn, warm, 2), fn);
    CHECK_OK(tc_jit_stance(fn, TC_STANCE_FAIL), fn);
    double begin = now_us(), worst = 0;
    int failures = 0;
    for (int i = 0; i < THREADS; i++) {
        clients[i].fn = fn;
        clients[i].state = (unsigned)i * 77 + 1;
        pthread_create(&clients[i].thread, NULL, ask, &clients[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(clients[i].thread, NULL);
        failures += clients[i].failures;
        worst = fmax(worst, clients[i].worst);
    }
    printf("%d requests of %d threads: %.1f us each, %d failed\n", THREADS * REQUESTS, (int)THREADS,
           (now_us() - begin) / (THREADS * REQUESTS), failures);
    tc_jit_variant list[8];
    int n = tc_jit_list(fn, list, 8);
    for (int i = 0; i < n && i < 8; i++) {
        printf("  %s: %d runs\n", list[i].signature, (int)list[i].hits);
    }
    int words[2] = {1, 2};
    float out[CLASSES];
    tc_status frozen = tc_jit_run(fn, TC_STATICS(1), TC_BUFS(TC_BUF_ND(words, 1, 2)),
                                  TC_BUFS(TC_BUF_ND(out, 1, CLASSES)));
    printf("what was not warmed: %s\n", tc_error(fn));
    int wrong = report_check(worst, 1e-5, "error") + failures;
    wrong += (frozen != TC_ERR_FROZEN) + (n != 2);
    tc_jit_free(fn);
    return wrong ? 1 : 0;
}
