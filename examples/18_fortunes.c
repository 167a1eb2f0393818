/* 18_fortunes.c - a small transformer that reads fortune cookies and writes its own.
 * Usage: 18_fortunes [steps [characters]]; 4000 steps (six minutes, two busy cores) give words and
 * sentences: 2.23 bits a character of the text held back, 7.38 before.
 *
 * A model of characters: from each stretch of text it learns what comes next after each of its
 * characters. Two layers of attention and a network of each character, norms before both. The text
 * is an array that the program indexes, so an input of a step is only where its stretches begin.
 * The last tenth of the text is held back and tells what was learnt. Sampling is a second program
 * over the same parameters: the last characters go in, one drawn from what may follow comes out.
 *
 * Data: the fortunes of Debian and others. Debian: apt install fortunes-min fortunes
 *
 * Prints losses, bits a character before and after, and a text that the network writes.
 *
 * Build, from the project's root: cc -O2 -I. examples/18_fortunes.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "fortunes.h"

enum { LENGTH = 64, BATCH = 32, WIDTH = 96, HEADS = 4, LAYERS = 2, SHORT = 120 };
enum { LAYER_PARAMS = 8, N_PARAMS = 4 + LAYERS * LAYER_PARAMS };

/* Parameters in the order in which make_params makes them. */
typedef struct params {
    tc_tensor list[N_PARAMS];
    int n;
} params;

static void make(params *p, tc_ctx *ctx, double scale, int rows, int columns)
{
    tc_tensor drawn = tc_randn(ctx, p->n, TC_F32, rows, columns);
    p->list[p->n++] = tc_param_from(tc_mul(drawn, scale));
}

static void make_scale(params *p, tc_ctx *ctx)
{
    p->list[p->n++] = tc_param_from(tc_full(ctx, 1, TC_F32, WIDTH));
}

static params make_params(tc_ctx *ctx)
{
    params p = {.n = 0};
    make(&p, ctx, 0.1, SYMBOLS, WIDTH);
    make(&p, ctx, 0.1, LENGTH, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        make_scale(&p, ctx);
        for (int j = 0; j < 4; j++) { /* query, key, value, and their way back */
            make(&p, ctx, 1 / sqrt(WIDTH), WIDTH, WIDTH);
        }
        make_scale(&p, ctx);
        make(&p, ctx, 1 / sqrt(WIDTH), WIDTH, 4 * WIDTH);
        make(&p, ctx, 0.5 / sqrt(WIDTH), 4 * WIDTH, WIDTH);
    }
    make_scale(&p, ctx);
    make(&p, ctx, 0.1, WIDTH, SYMBOLS);
    return p;
}

static tc_tensor norm(tc_tensor x, tc_tensor scale)
{
    return tc_rms_norm(x, TC_AXES(-1), scale, 1e-5);
}

/* [batch, LENGTH, WIDTH] -> [batch, HEADS, LENGTH, WIDTH / HEADS] */
static tc_tensor heads(tc_tensor x)
{
    return tc_transpose(tc_reshape(x, -1, LENGTH, HEADS, WIDTH / HEADS), 1, 2);
}

static tc_tensor layer(tc_tensor x, const tc_tensor *w)
{
    tc_tensor y = norm(x, w[0]), qkv[3];
    for (int i = 0; i < 3; i++) {
        qkv[i] = heads(tc_matmul(y, w[1 + i]));
    }
    y = tc_scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], TC_NONE, true, 0);
    y = tc_reshape(tc_transpose(y, 1, 2), -1, LENGTH, WIDTH);
    x = tc_add(x, tc_matmul(y, w[4]));
    return tc_add(x, tc_matmul(tc_gelu(tc_matmul(norm(x, w[5]), w[6])), w[7]));
}

/* Characters [batch, LENGTH] -> scores of what follows each, [batch, LENGTH, SYMBOLS]. */
static tc_tensor forward(tc_tensor characters, const params *p)
{
    tc_tensor x = tc_add(tc_index(p->list[0], TC_TENSORS(characters)), p->list[1]);
    for (int i = 0; i < LAYERS; i++) {
        x = layer(x, p->list + 2 + i * LAYER_PARAMS);
    }
    return tc_matmul(norm(x, p->list[p->n - 2]), p->list[p->n - 1]);
}

/* The loss of the stretches that begin at `where` [BATCH]. */
static tc_tensor loss_of(tc_tensor where, const params *p)
{
    tc_tensor all = tc_borrow(where.ctx, text, TC_U8, n_text);
    tc_tensor steps = tc_arange(where.ctx, 0, LENGTH + 1, 1, TC_I32);
    tc_tensor stretch = tc_index(all, TC_TENSORS(tc_add(tc_unsqueeze(where, 1), steps)));
    tc_tensor scores = forward(tc_range(stretch, 1, 0, LENGTH), p);
    tc_tensor next = tc_range(stretch, 1, 1, LENGTH + 1);
    return tc_cross_entropy(tc_reshape(scores, -1, SYMBOLS), tc_reshape(next, -1));
}

/* Inputs: where the stretches begin, the rate. Output: the loss. */
static tc_program *compile_step(tc_ctx *ctx, const params *p)
{
    tc_tensor where = tc_input(ctx, "where", TC_I32, BATCH), rate = tc_input(ctx, "rate", TC_F32);
    tc_tensor outs[1 + TC_EFFECTS(N_PARAMS)] = {loss_of(where, p)}, grads[N_PARAMS];
    int n;
    tc_program *f;
    CHECK_OK(tc_grad(outs[0], p->list, p->n, grads), ctx);
    tc_clip_grads(grads, p->n, 1.0, grads);
    CHECK_OK(tc_adamw(p->list, grads, p->n, rate, &(tc_adam_options){.weight_decay = 0.01},
                      outs + 1, &n),
             ctx);
    CHECK_OK(tc_compile_fn(TC_TENSORS(where, rate), TC_TENSORS_N(outs, 1 + n), NULL, &f), ctx);
    return f;
}

/* Inputs: the last LENGTH characters, a key. Output: a character, drawn from what may follow: the
 * largest of score + g, where g is -log(-log(u)) of a uniform u, is one with its probability. */
static tc_program *compile_sample(tc_ctx *ctx, const params *p)
{
    tc_tensor last = tc_input(ctx, "last", TC_U8, 1, LENGTH), key = tc_input(ctx, "key", TC_U64);
    tc_tensor scores = tc_reshape(tc_slice(forward(last, p), 1, -1, TC_END, 1), SYMBOLS);
    tc_tensor u = tc_add(tc_rand(ctx, key, TC_F32, SYMBOLS), 1e-9);
    tc_tensor drawn = tc_sub(tc_div(scores, 0.8), tc_log(tc_neg(tc_log(u))));
    tc_program *f;
    CHECK_OK(tc_compile_fn(TC_TENSORS(last, key),
                           TC_TENSORS(tc_cast(tc_argmax(drawn, 0, false), TC_U8)), NULL, &f),
             ctx);
    return f;
}

/* The mean loss of a few stretches that were held back, the same each time. */
static double test(tc_ctx *ctx, const params *p)
{
    int where[BATCH];
    float loss;
    for (int i = 0; i < BATCH; i++) {
        where[i] = n_text / 10 * 9 + i * (n_text / 10 - LENGTH - 1) / BATCH;
    }
    tc_tensor t = loss_of(tc_copy_in(ctx, where, TC_I32, BATCH), p);
    CHECK_OK(tc_read(t, &loss, 1), t);
    return (double)loss;
}

static void write_text(tc_ctx *ctx, const params *p, int n)
{
    unsigned char *written = malloc((size_t)(LENGTH + n));
    tc_program *f = compile_sample(ctx, p);
    memcpy(written, text + n_text / 10 * 9, LENGTH); /* how it begins: words held back */
    for (int i = 0; i < n; i++) {
        uint64_t key = (uint64_t)i;
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(written + i, LENGTH), TC_BUF(&key, 1)),
                        TC_BUFS(TC_BUF(written + i + LENGTH, 1))),
                 f);
    }
    print_text(written, LENGTH, n);
    free(written);
    tc_program_free(f);
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : SHORT, n = argc > 2 ? atoi(argv[2]) : 200;
    int where[BATCH];
    float loss;
    if (!read_fortunes()) {
        return 0;
    }
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    params p = make_params(ctx);
    tc_program *step = compile_step(ctx, &p);
    double begin = now_us(), first = test(ctx, &p);
    for (int i = 0; i < steps; i++) {
        float rate = (float)(0.003 * fmin(1, (i + 1) / 20.0) * (1.05 - (double)i / steps));
        draw_places(where, BATCH, 0, n_text / 10 * 9 - LENGTH);
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(where, BATCH), TC_BUF(&rate, 1)),
                        TC_BUFS(TC_BUF(&loss, 1))),
                 step);
        if ((i + 1) % (steps / 5 + 1) == 0) {
            printf("  step %5d: loss %.3f, %.1f s\n", i + 1, (double)loss,
                   (now_us() - begin) * 1e-6);
        }
    }
    double last = test(ctx, &p), most = steps >= 2000 ? 1.8 : 2.7;
    write_text(ctx, &p, n);
    tc_program_free(step);
    tc_ctx_free(ctx);
    printf("text held back: %.3f bits a character before, %.3f now: %s %.2f\n", first / log(2),
           last / log(2), last < most ? "below" : "NOT below", most / log(2));
    return last < most ? 0 : 1;
}
