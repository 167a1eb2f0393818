/* 26_recurrent.c - a recurrent network that reads fortune cookies and writes its own.
 * Usage: 26_recurrent [steps [characters]]; 3000 steps (four minutes of two busy cores) give words:
 * 2.24 bits a character of the text held back, 6.62 before.
 *
 * A model of characters, as 18_fortunes.c, but one that reads a character after the other: a layer
 * of gated recurrent units. tc_scan goes through a stretch of text, tc_grad back through it. What a
 * unit makes of the character alone is one product for all steps, outside of the loop.
 * Writing is one program too: a tc_scan over the characters that are given, and after it one whose
 * steps each draw a character, which is what the next step reads.
 *
 * Data: the fortunes of Debian and others. Debian: apt install fortunes-min fortunes
 *
 * Prints losses, bits a character before and after, and a text that the network writes.
 *
 * Build, from the project's root: cc -O2 -I. examples/26_recurrent.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "fortunes.h"

enum { LENGTH = 64, BATCH = 32, WIDTH = 192, SHORT = 60 };

/* A row of `read` is what a character gives the three gates of each unit, [SYMBOLS, 3 * WIDTH];
 * keep [WIDTH, 3 * WIDTH] what the state gives them; tell [WIDTH, SYMBOLS] scores of what comes
 * next. */
enum { READ, KEEP, BIAS, TELL, N_PARAMS };
typedef struct model {
    tc_ctx *ctx;
    tc_tensor p[N_PARAMS];
} model;

static model make_model(tc_ctx *ctx)
{
    model m = {.ctx = ctx};
    double of_state = 1 / sqrt(WIDTH);
    m.p[READ] = tc_param_from(tc_mul(tc_randn(ctx, 1, TC_F32, SYMBOLS, 3 * WIDTH), 0.3));
    m.p[KEEP] = tc_param_from(tc_mul(tc_randn(ctx, 2, TC_F32, WIDTH, 3 * WIDTH), of_state));
    m.p[BIAS] = tc_param_from(tc_full(ctx, 0, TC_F32, 3 * WIDTH));
    m.p[TELL] = tc_param_from(tc_mul(tc_randn(ctx, 3, TC_F32, WIDTH, SYMBOLS), of_state));
    return m;
}

/* What characters of any shape give the gates. */
static tc_tensor read_characters(const model *m, tc_tensor characters)
{
    return tc_add(tc_index(m->p[READ], TC_TENSORS(characters)), m->p[BIAS]);
}

/* The state [batch, WIDTH] after one character, from what its gates are given. */
static tc_tensor next_state(const model *m, tc_tensor state, tc_tensor given)
{
    tc_tensor kept = tc_matmul(state, m->p[KEEP]);
    tc_tensor both = tc_sigmoid(
        tc_add(tc_range(given, 1, 0, 2 * WIDTH), tc_range(kept, 1, 0, 2 * WIDTH)));
    tc_tensor forget = tc_range(both, 1, 0, WIDTH), stay = tc_range(both, 1, WIDTH, 2 * WIDTH);
    tc_tensor fresh = tc_tanh(tc_add(tc_range(given, 1, 2 * WIDTH, 3 * WIDTH),
                                     tc_mul(forget, tc_range(kept, 1, 2 * WIDTH, 3 * WIDTH))));
    return tc_add(fresh, tc_mul(stay, tc_sub(state, fresh)));
}

static tc_status read_step(void *user, const tc_tensor *state, const tc_tensor *given,
                           tc_tensor *next, tc_tensor *told)
{
    next[0] = told[0] = next_state(user, state[0], given[0]);
    return TC_OK;
}

/* Characters [steps, batch] -> the states behind each, [steps, batch, WIDTH], and the last one. */
static tc_tensor read_all(model *m, tc_tensor characters, tc_tensor *last)
{
    tc_tensor zero = tc_full(m->ctx, 0, TC_F32, tc_size(characters, 1), WIDTH), states;
    CHECK_OK(tc_scan(TC_TENSORS(zero), TC_TENSORS(read_characters(m, characters)), 0, false,
                     read_step, m, last, &states, 1),
             m->ctx);
    return states;
}

/* The loss of the stretches that begin at `where` [BATCH]. */
static tc_tensor loss_of(model *m, tc_tensor where)
{
    tc_tensor all = tc_borrow(m->ctx, text, TC_U8, n_text), last;
    tc_tensor steps = tc_arange(m->ctx, 0, LENGTH + 1, 1, TC_I32);
    tc_tensor stretch = tc_index(all, TC_TENSORS(tc_add(tc_unsqueeze(steps, 1), where)));
    tc_tensor states = read_all(m, tc_range(stretch, 0, 0, LENGTH), &last);
    tc_tensor scores = tc_matmul(tc_reshape(states, -1, WIDTH), m->p[TELL]);
    return tc_cross_entropy(scores, tc_reshape(tc_range(stretch, 0, 1, LENGTH + 1), -1));
}

/* Inputs: where the stretches begin, the rate. Output: the loss. */
static tc_program *compile_step(model *m)
{
    tc_tensor where = tc_input(m->ctx, "where", TC_I32, BATCH);
    tc_tensor rate = tc_input(m->ctx, "rate", TC_F32), grads[N_PARAMS];
    tc_tensor outs[1 + TC_EFFECTS(N_PARAMS)] = {loss_of(m, where)};
    int n;
    tc_program *f;
    CHECK_OK(tc_grad(outs[0], m->p, N_PARAMS, grads), m->ctx);
    tc_clip_grads(grads, N_PARAMS, 1.0, grads);
    CHECK_OK(tc_adamw(m->p, grads, N_PARAMS, rate, NULL, outs + 1, &n), m->ctx);
    CHECK_OK(tc_compile_fn(TC_TENSORS(where, rate), TC_TENSORS_N(outs, 1 + n), NULL, &f), m->ctx);
    return f;
}

/* Carries: the state, the last character. The largest of score - log(-log(u)), u uniform, is a
 * character with its probability. */
static tc_status write_step(void *user, const tc_tensor *c, const tc_tensor *u, tc_tensor *next,
                            tc_tensor *written)
{
    const model *m = user;
    next[0] = next_state(m, c[0], read_characters(m, c[1]));
    tc_tensor scores = tc_div(tc_matmul(next[0], m->p[TELL]), 0.8);
    tc_tensor drawn = tc_argmax(tc_sub(scores, tc_log(tc_neg(tc_log(u[0])))), 1, false);
    next[1] = written[0] = tc_cast(drawn, TC_U8);
    return TC_OK;
}

static void write_text(model *m, int n)
{
    unsigned char *written = malloc((size_t)(LENGTH + n));
    tc_tensor given = tc_input(m->ctx, "given", TC_U8, LENGTH, 1), last[2], characters;
    tc_tensor u = tc_add(tc_rand(m->ctx, 5, TC_F32, n, 1, SYMBOLS), 1e-9);
    tc_program *f;
    read_all(m, tc_range(given, 0, 0, LENGTH - 1), last);
    last[1] = tc_reshape(tc_range(given, 0, LENGTH - 1, LENGTH), 1);
    CHECK_OK(tc_scan(TC_TENSORS(last[0], last[1]), TC_TENSORS(u), 0, false, write_step, m, last,
                     &characters, 1),
             m->ctx);
    CHECK_OK(tc_compile(characters, &f), characters);
    memcpy(written, text + n_text / 10 * 9, LENGTH); /* how it begins: words held back */
    double begin = now_us();
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(written, LENGTH)), TC_BUFS(TC_BUF(written + LENGTH, n))), f);
    print_text(written, LENGTH, n);
    printf("%d characters read, %d written, %.1f us each\n", LENGTH, n,
           (now_us() - begin) / (LENGTH + n));
    free(written);
    tc_program_free(f);
}

/* The mean loss of a few stretches that were held back, the same each time. */
static double test(model *m)
{
    int where[BATCH];
    float loss;
    for (int i = 0; i < BATCH; i++) {
        where[i] = n_text / 10 * 9 + i * (n_text / 10 - LENGTH - 1) / BATCH;
    }
    tc_tensor t = loss_of(m, tc_copy_in(m->ctx, where, TC_I32, BATCH));
    CHECK_OK(tc_read(t, &loss, 1), t);
    return (double)loss;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : SHORT, n = argc > 2 ? atoi(argv[2]) : 200;
    int where[BATCH];
    float loss;
    tc_ctx *ctx;
    if (!read_fortunes()) {
        return 0;
    }
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    model m = make_model(ctx);
    tc_program *step = compile_step(&m);
    double begin = now_us(), first = test(&m);
    for (int i = 0; i < steps; i++) {
        float rate = (float)(0.01 * fmin(1, (i + 1) / 20.0) * (1.05 - (double)i / steps));
        draw_places(where, BATCH, 0, n_text / 10 * 9 - LENGTH);
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(where, BATCH), TC_BUF(&rate, 1)),
                        TC_BUFS(TC_BUF(&loss, 1))),
                 step);
        if ((i + 1) % (steps / 5 + 1) == 0) {
            printf("  step %5d: loss %.3f, %.1f s\n", i + 1, (double)loss,
                   (now_us() - begin) * 1e-6);
        }
    }
    double last = test(&m), most = steps >= 2000 ? 1.8 : 2.7;
    write_text(&m, n);
    tc_program_free(step);
    tc_ctx_free(ctx);
    printf("text held back: %.3f bits a character before, %.3f now: %s %.2f\n", first / log(2),
           last / log(2), last < most ? "below" : "NOT below", most / log(2));
    return last < most ? 0 : 1;
}
