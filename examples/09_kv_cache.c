/* 09_kv_cache.c - a decoder's attention, word by word, over a cache of keys and values.
 *
 * The cache is plain memory of the caller. Step n reads the first n rows of it and writes row n
 * right after them: an output may be in the same array as an input as long as the two do not
 * overlap, so nothing is copied. How many rows there are is a symbolic size, so all steps are one
 * program. The new word also attends to itself, whose row is joined to the cache by tc_cat, which
 * moves nothing either.
 *
 * Prints the time of a word, and the difference from attention over all words at once (none).
 *
 * Build, from the project's root: cc -O2 -I. examples/09_kv_cache.c -lm -ldl -lpthread */
#define TC_DYNAMIC_SHAPES
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { WIDTH = 64, MOST = 256 };

static float inputs[MOST * WIDTH], keys[MOST * WIDTH], values[MOST * WIDTH], found[MOST * WIDTH];
static float weights[3][WIDTH * WIDTH];

static tc_tensor project(tc_tensor x, int i)
{
    return tc_matmul(x, tc_borrow(x.ctx, weights[i], TC_F32, WIDTH, WIDTH));
}

static tc_tensor attend(tc_tensor q, tc_tensor k, tc_tensor v)
{
    tc_tensor scores = tc_div(tc_matmul(q, tc_transpose(k, 0, 1)), sqrt(WIDTH));
    return tc_matmul(tc_softmax(scores, -1), v);
}

/* Inputs: the word [1, WIDTH], the cache so far [n, WIDTH] twice. Outputs: what it attends to, and
 * its rows for the cache. */
static tc_program *compile_step(tc_ctx *ctx)
{
    tc_program *f;
    int64_t n = TC_DIM("n", 0, MOST - 1);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, WIDTH);
    tc_tensor k = tc_input(ctx, "keys", TC_F32, n, WIDTH);
    tc_tensor v = tc_input(ctx, "values", TC_F32, n, WIDTH);
    tc_tensor key = project(x, 1), value = project(x, 2);
    tc_tensor y = attend(project(x, 0), tc_cat(TC_TENSORS(k, key), 0),
                         tc_cat(TC_TENSORS(v, value), 0));
    CHECK_OK(tc_compile_fn(TC_TENSORS(x, k, v), TC_TENSORS(y, key, value), NULL, &f), y);
    return f;
}

/* All words at once, each seeing those before it. */
static tc_tensor whole(tc_ctx *ctx)
{
    tc_tensor x = tc_borrow(ctx, inputs, TC_F32, MOST, WIDTH);
    tc_tensor place = tc_arange(ctx, 0, MOST, 1, TC_I32);
    tc_tensor seen = tc_le(tc_unsqueeze(place, 0), tc_unsqueeze(place, 1));
    tc_tensor scores = tc_matmul(project(x, 0), tc_transpose(project(x, 1), 0, 1));
    scores = tc_where(seen, tc_div(scores, sqrt(WIDTH)), -INFINITY);
    return tc_matmul(tc_softmax(scores, -1), project(x, 2));
}

int main(void)
{
    static float expected[MOST * WIDTH];
    tc_ctx *ctx;
    double worst = 0;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < MOST * WIDTH; i++) {
        inputs[i] = (float)(i * 2654435761u >> 16) * 0x1p-15f - 1;
    }
    for (int i = 0; i < 3 * WIDTH * WIDTH; i++) {
        weights[i / (WIDTH * WIDTH)][i % (WIDTH * WIDTH)] = sinf((float)i) / sqrtf(WIDTH);
    }
    tc_program *step = compile_step(ctx);
    double begin = now_us();
    for (int n = 0; n < MOST; n++) {
        float *row = inputs + n * WIDTH, *key = keys + n * WIDTH, *value = values + n * WIDTH;
        CHECK_OK(tc_run(step,
                        TC_BUFS(TC_BUF(row, WIDTH), TC_BUF(keys, n * WIDTH),
                                TC_BUF(values, n * WIDTH)),
                        TC_BUFS(TC_BUF(found + n * WIDTH, WIDTH), TC_BUF(key, WIDTH),
                                TC_BUF(value, WIDTH))),
                 step);
    }
    printf("%d words, one program, %.1f us a word\n", (int)MOST, (now_us() - begin) / MOST);
    tc_tensor all = whole(ctx);
    CHECK_OK(tc_read(all, expected, MOST * WIDTH), all);
    for (int i = 0; i < MOST * WIDTH; i++) {
        worst = fmax(worst, fabs((double)found[i] - (double)expected[i]));
    }
    int wrong = report_check(worst, 1e-5, "difference from all words at once");
    tc_program_free(step);
    tc_ctx_free(ctx);
    return wrong ? 1 : 0;
}
