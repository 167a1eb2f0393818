/* 19_gpt2.c - GPT-2: weights from a file, a cache of keys and values, one program for all lengths.
 * Usage: 19_gpt2 [model.safetensors [token ...]]; without a file, random weights of GPT-2-small.
 *
 * The program takes m new tokens after the n that the cache holds, n and m being symbolic sizes: a
 * prompt is one run with n = 0, each token after it one with m = 1. The new rows of the cache are
 * outputs that are stored right after the rows that are read, so nothing is copied; the file is
 * mapped memory. Names and shapes are those of the published model. Tokens are numbers, no text.
 *
 * Prints the tokens that follow the prompt, the time of a token, and the difference from a run
 * without the cache.
 *
 * Build, from the project's root: cc -O2 -I. examples/19_gpt2.c -lm -ldl -lpthread */
#define TC_DYNAMIC_SHAPES
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { WIDTH = 768, HEADS = 12, LAYERS = 12, CONTEXT = 1024, WORDS = 50257, MADE = 16 };
static float caches[2 * LAYERS][CONTEXT * WIDTH]; /* keys and values of each layer */

/* Where weights come from: a file, or random numbers. */
typedef struct source {
    tc_ctx *ctx;
    tc_file *file;
    uint64_t key;
} source;

/* A matrix, or, where there are no rows, a vector: a bias, or `scale` everywhere. */
static tc_tensor weight(source *s, const char *of, const char *end, int64_t rows, int64_t columns,
                        double scale)
{
    char name[64];
    snprintf(name, sizeof(name), "%s.%s", of, end);
    if (s->file) {
        return tc_file_borrow(s->ctx, s->file, name);
    } else if (!rows) {
        return tc_full(s->ctx, scale, TC_F32, columns);
    }
    return tc_param_from(tc_mul(tc_randn(s->ctx, s->key++, TC_F32, rows, columns), 0.02));
}

static tc_tensor norm(source *s, tc_tensor x, const char *of)
{
    return tc_layer_norm(x, TC_AXES(-1), weight(s, of, "weight", 0, WIDTH, 1),
                         weight(s, of, "bias", 0, WIDTH, 0), 1e-5);
}

static tc_tensor linear(source *s, tc_tensor x, const char *of, int64_t out)
{
    tc_tensor y = tc_matmul(x, weight(s, of, "weight", tc_size(x, -1), out, 0));
    return tc_add(y, weight(s, of, "bias", 0, out, 0));
}

static tc_tensor heads(tc_tensor x) /* [rows, WIDTH] -> [HEADS, rows, WIDTH / HEADS] */
{
    return tc_transpose(tc_reshape(x, tc_size(x, 0), HEADS, -1), 0, 1);
}

/* One layer. cache: what is seen, keys and values; then the new rows. */
static tc_tensor layer(source *s, tc_tensor x, int i, const tc_tensor *cache, tc_tensor *rows,
                       tc_tensor seen)
{
    char of[8][24];
    static const char *const parts[] = {"ln_1", "attn.c_attn", "attn.c_proj",
                                        "ln_2", "mlp.c_fc",    "mlp.c_proj"};
    for (int j = 0; j < 6; j++) {
        snprintf(of[j], sizeof(of[j]), "h.%d.%s", i, parts[j]);
    }
    tc_tensor qkv = linear(s, norm(s, x, of[0]), of[1], 3 * WIDTH), kv[2];
    for (int j = 0; j < 2; j++) {
        rows[j] = tc_range(qkv, 1, (j + 1) * WIDTH, (j + 2) * WIDTH);
        kv[j] = heads(tc_cat(TC_TENSORS(cache[j], rows[j]), 0));
    }
    tc_tensor y = tc_scaled_dot_product_attention(heads(tc_range(qkv, 1, 0, WIDTH)), kv[0], kv[1],
                                                  seen, false, 0);
    y = tc_reshape(tc_transpose(y, 0, 1), tc_size(x, 0), WIDTH);
    x = tc_add(x, linear(s, y, of[2], WIDTH));
    y = tc_gelu_tanh(linear(s, norm(s, x, of[3]), of[4], 4 * WIDTH));
    return tc_add(x, linear(s, y, of[5], WIDTH));
}

/* Inputs: tokens [m], caches [n, WIDTH]. Outputs: scores of the word behind the last token, the
 * best of them, and the new rows of all caches. */
static tc_program *compile(source *s)
{
    tc_tensor ins[1 + 2 * LAYERS], outs[2 + 2 * LAYERS];
    int64_t m = TC_DIM("m", 1, CONTEXT), n = TC_DIM("n", 0, CONTEXT - 1), all = tc_dim_add(n, m);
    ins[0] = tc_input(s->ctx, "tokens", TC_I32, m);
    for (int i = 0; i < 2 * LAYERS; i++) {
        ins[1 + i] = tc_input(s->ctx, i % 2 ? "values" : "keys", TC_F32, n, WIDTH);
    }
    tc_tensor place = tc_arange(s->ctx, n, all, 1, TC_I32);
    tc_tensor seen = tc_le(tc_arange(s->ctx, 0, all, 1, TC_I32), tc_unsqueeze(place, 1));
    tc_tensor words = weight(s, "wte", "weight", WORDS, WIDTH, 0);
    tc_tensor places = weight(s, "wpe", "weight", CONTEXT, WIDTH, 0);
    tc_tensor x = tc_add(tc_index_select(words, 0, ins[0]), tc_index_select(places, 0, place));
    for (int i = 0; i < LAYERS; i++) {
        x = layer(s, x, i, ins + 1 + 2 * i, outs + 2 + 2 * i, seen);
    }
    x = norm(s, tc_slice(x, 0, tc_dim_sub(m, 1), TC_END, 1), "ln_f");
    outs[0] = tc_reshape(tc_matmul(x, tc_transpose(words, 0, 1)), WORDS);
    outs[1] = tc_cast(tc_argmax(outs[0], 0, false), TC_I32);
    tc_program *f;
    CHECK_OK(tc_compile_fn(TC_TENSORS_N(ins, 1 + 2 * LAYERS), TC_TENSORS_N(outs, 2 + 2 * LAYERS),
                           NULL, &f),
             s->ctx);
    return f;
}

/* Runs m tokens behind the n that the caches hold; the scores, and the token that is likeliest. */
static int run(tc_program *f, const int *tokens, int64_t m, int64_t n, float *scores)
{
    int best;
    tc_buf ins[1 + 2 * LAYERS] = {TC_BUF(tokens, m)};
    tc_buf outs[2 + 2 * LAYERS] = {TC_BUF(scores, WORDS), TC_BUF(&best, 1)};
    for (int i = 0; i < 2 * LAYERS; i++) {
        ins[1 + i] = TC_BUF(caches[i], n * WIDTH);
        outs[2 + i] = TC_BUF(caches[i] + n * WIDTH, m * WIDTH);
    }
    CHECK_OK(tc_run(f, TC_BUFS_N(ins, 1 + 2 * LAYERS), TC_BUFS_N(outs, 2 + 2 * LAYERS)), f);
    return best;
}

int main(int argc, char **argv)
{
    static float scores[WORDS], again[WORDS];
    int tokens[CONTEXT] = {464, 3280, 284, 1997, 318}, n_prompt = argc > 2 ? argc - 2 : 5;
    for (int i = 0; argc > 2 && i < n_prompt && i < CONTEXT - MADE; i++) {
        tokens[i] = atoi(argv[2 + i]);
    }
    source s = {.key = 1};
    CHECK_OK(tc_ctx_make(&s.ctx, NULL), s.ctx);
    if (argc > 1) {
        CHECK_OK(tc_file_open(s.ctx, argv[1], &s.file), s.ctx);
    }
    tc_program *f = compile(&s);
    int n = n_prompt;
    tokens[n] = run(f, tokens, n, 0, scores);
    double begin = now_us(), worst = 0;
    for (; n < n_prompt + MADE - 1; n++) {
        printf("%d ", tokens[n + 1] = run(f, tokens + n, 1, n, scores));
    }
    printf("\n%.1f ms a token\n", (now_us() - begin) * 1e-3 / (MADE - 1));
    bool same = run(f, tokens, n, 0, again) == tokens[n]; /* all at once, without a cache */
    for (int i = 0; i < WORDS; i++) {
        worst = fmax(worst, fabs((double)scores[i] - (double)again[i]));
    }
    tc_program_free(f);
    tc_file_close(s.file);
    tc_ctx_free(s.ctx);
    return report_check(same ? worst : 1, 1e-3, "difference from all tokens at once");
}
