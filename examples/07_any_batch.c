/* 07_any_batch.c - one program for every batch and every length of text: symbolic sizes.
 *
 * TC_DIM("batch", 1, 64) stands where a size is expected and is any number of that range, anew at
 * each run; the run finds it from the numbers of elements it is given. Here a batch of texts, each
 * a list of word numbers, becomes one unit vector a text: the words' vectors are gathered, those
 * past a text's end are left out, the rest is averaged and normalised.
 *
 * Prints how many compiler runs other sizes need after the first (none), and the largest error.
 *
 * Build, from the project's root: cc -O2 -I. examples/07_any_batch.c -lm -ldl -lpthread */
#define TC_DYNAMIC_SHAPES /* before every include of tc.h */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { WORDS = 1000, WIDTH = 64, MOST_TEXTS = 64, MOST_WORDS = 128 };

static float table[WORDS * WIDTH], out[MOST_TEXTS * WIDTH];
static int words[MOST_TEXTS * MOST_WORDS], lengths[MOST_TEXTS];

/* words [batch, length], lengths [batch] -> [batch, WIDTH] */
static tc_tensor embed(tc_tensor vectors, tc_tensor text, tc_tensor used)
{
    int64_t batch = tc_size(text, 0), length = tc_size(text, 1);
    tc_tensor flat = tc_reshape(text, -1);
    tc_tensor rows = tc_reshape(tc_index_select(vectors, 0, flat), batch, length, WIDTH);
    tc_tensor place = tc_reshape(tc_arange(text.ctx, 0, length, 1, TC_I32), 1, length, 1);
    tc_tensor inside = tc_lt(place, tc_reshape(used, batch, 1, 1));
    tc_tensor sum = tc_sum(tc_where(inside, rows, 0), TC_AXES(1), false);
    tc_tensor mean = tc_div(sum, tc_reshape(used, batch, 1));
    return tc_mul(mean, tc_rsqrt(tc_sum(tc_square(mean), TC_AXES(1), true)));
}

/* The largest difference between out and the same computed in plain C. */
static double check(int batch, int length)
{
    double worst = 0;
    for (int b = 0; b < batch; b++) {
        double mean[WIDTH] = {0}, square = 0;
        for (int i = 0; i < lengths[b] * WIDTH; i++) {
            mean[i % WIDTH] += table[words[b * length + i / WIDTH] * WIDTH + i % WIDTH];
        }
        for (int i = 0; i < WIDTH; i++) {
            square += mean[i] * mean[i];
        }
        for (int i = 0; i < WIDTH; i++) {
            worst = fmax(worst, fabs(out[b * WIDTH + i] - mean[i] / sqrt(square)));
        }
    }
    return worst;
}

int main(void)
{
    tc_ctx *ctx;
    tc_program *f;
    tc_stats before, after;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < WORDS * WIDTH; i++) {
        table[i] = (float)(i * 2654435761u >> 16) * 0x1p-15f - 1;
    }
    int64_t batch = TC_DIM("batch", 1, MOST_TEXTS), length = TC_DIM("length", 1, MOST_WORDS);
    tc_tensor text = tc_input(ctx, "text", TC_I32, batch, length);
    tc_tensor used = tc_input(ctx, "used", TC_I32, batch);
    tc_tensor y = embed(tc_borrow(ctx, table, TC_F32, WORDS, WIDTH), text, used);
    CHECK_OK(tc_compile_fn(TC_TENSORS(text, used), TC_TENSORS(y), NULL, &f), y);
    tc_stats(ctx, &before);
    double worst = 0;
    for (int n = 1; n <= MOST_TEXTS; n *= 4) {
        for (int m = 3; m <= MOST_WORDS; m += 25) {
            for (int i = 0; i < n * m; i++) {
                words[i] = i * 37 % WORDS;
            }
            for (int i = 0; i < n; i++) {
                lengths[i] = 1 + i % m;
            }
            CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(words, n * m), TC_BUF(lengths, n)),
                            TC_BUFS(TC_BUF(out, n * WIDTH))),
                     f);
            worst = fmax(worst, check(n, m));
        }
    }
    tc_stats(ctx, &after);
    int more = (int)(after.compiler_runs - before.compiler_runs);
    printf("batches of 1 to 64 texts, 3 to 128 words: one program, %d more compiler runs\n", more);
    int wrong = report_check(worst, 1e-5, "error") + (more != 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return wrong ? 1 : 0;
}
