/* bench/fusion.c - does fusion ever lose? Random blocks of layers as tc fuses them, against a
 * kernel for each op (options.fusion = -1), in turns, on one thread.
 *
 *     fusion [BLOCKS] [--first SEED] [--grad] [--backend NAME] [--threads N] [--all] [--json]
 *
 * Default: 12 blocks of the cpu backend. A block is 3 to 6 layers over images [n, c, h, w] or rows
 * [n, t, d]; --grad: its mean square and the gradients of all inputs. The figure is the time of ops
 * apart over that of the fused program (above 1: fusion gains). The table has the geometric mean,
 * the smallest figure of blocks that take 0.3 ms apart, and the largest difference of results,
 * which is 0 on a CPU; --all: each block. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"
#include "blocks.h"

#include <math.h>

enum { ROUNDS = 61, ROUND_MS = 1 };
#define LONG_NS 0.3e6 /* of a block that counts for the smallest figure */

/* ---- measuring ---- */

typedef struct side {
    tc_program *program;
    tc_buf in[MOST_INPUTS], out[MOST_INPUTS + 1];
    int n_in, n_out;
    bool failed;
} side;

static struct {
    const char *backend;
    int threads;
    bool grad, all;
} options = {"cpu", 1, false, false};

static void run(void *arg)
{
    side *s = arg;
    s->failed = tc_run(s->program, (tc_bufs){s->in, s->n_in}, (tc_bufs){s->out, s->n_out}) ||
                s->failed;
}

static float *numbers(int64_t n, uint64_t state)
{
    float *p = calloc((size_t)n + 1, sizeof(*p));
    for (int64_t i = 0; p && i < n && state; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        p[i] = (float)(state >> 40) / (float)(1 << 25) - 0.25f;
    }
    return p;
}

/* The block of a seed as a program; NULL: why it is none. */
static const char *make(int seed, int fusion, side *s, char *name)
{
    static char why[400];
    block b = {0};
    tc_options o = {.backend = options.backend,
                    .threads = options.threads,
                    .fusion = fusion,
                    .fallback = TC_FALLBACK_REFUSE};
    tc_tensor outs[MOST_INPUTS + 1];
    if (tc_ctx_make(&b.ctx, &o)) {
        return "the backend does not work here";
    }
    outs[0] = draw_block(&b, seed);
    s->n_out = 1;
    memcpy(name, b.name, NAME);
    if (options.grad) {
        outs[0] = tc_mean(tc_square(outs[0]), TC_ALL, false);
        s->n_out += tc_grad(outs[0], b.inputs, b.n_inputs, outs + 1) ? 0 : b.n_inputs;
    }
    tc_status status = tc_compile_fn(TC_TENSORS_N(b.inputs, b.n_inputs),
                                     TC_TENSORS_N(outs, s->n_out), &o, &s->program);
    snprintf(why, sizeof(why), "%s", status ? tc_error(b.ctx) : "");
    s->n_in = b.n_inputs;
    for (int i = 0; i < s->n_in && !status; i++) {
        int64_t n = tc_count(b.inputs[i]);
        s->in[i] = TC_BUF(numbers(n, (uint64_t)i + 1), n);
    }
    for (int i = 0; i < s->n_out && !status; i++) {
        int64_t n = tc_count(outs[i]);
        s->out[i] = TC_BUF(numbers(n, 0), n);
    }
    tc_ctx_free(b.ctx);
    return status ? why : NULL;
}

static void drop(side *s)
{
    for (int i = 0; i < s->n_in; i++) {
        free(s->in[i].data);
    }
    for (int i = 0; i < s->n_out; i++) {
        free(s->out[i].data);
    }
    tc_program_free(s->program);
}

/* The largest difference of two results, over the largest of their elements. */
static double difference(const side *a, const side *b)
{
    double far = 0, size = 0;
    for (int i = 0; i < a->n_out; i++) {
        const float *x = a->out[i].data, *y = b->out[i].data;
        for (int64_t e = 0; e < a->out[i].n; e++) {
            far = fmax(far, fabs((double)x[e] - y[e]));
            size = fmax(size, fabs((double)y[e]));
        }
    }
    return size > 0 ? far / size : far;
}

int main(int argc, char **argv)
{
    int blocks = 12, first = 1, done = 0;
    double logs = 0, worst = HUGE_VAL, far = 0;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        options.grad = options.grad || !strcmp(argv[i], "--grad");
        options.all = options.all || !strcmp(argv[i], "--all");
        if (argv[i][0] != '-') {
            blocks = atoi(argv[i]);
        } else if (!strcmp(argv[i], "--first") && more) {
            first = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--threads") && more) {
            options.threads = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--backend") && more) {
            options.backend = argv[++i];
        }
    }
    bench_begin(argc, argv, "fusion");
    for (int seed = first; seed < first + blocks; seed++) {
        side both[2] = {0};
        char name[NAME];
        const char *why = make(seed, 0, &both[0], name);
        why = why ? why : make(seed, -1, &both[1], name);
        bench_side sides[2] = {{.name = "fused", .run = run, .arg = &both[0]},
                               {.name = "apart", .run = run, .arg = &both[1]}};
        if (!why) {
            bench_measure(sides, 2, ROUNDS, ROUND_MS);
            why = both[0].failed || both[1].failed ? "a run failed" : NULL;
        }
        if (why) {
            bench_skip(name, why);
        } else {
            double gain = sides[1].best_ns / sides[0].best_ns;
            logs += log(gain);
            far = fmax(far, difference(&both[0], &both[1]));
            worst = sides[1].best_ns >= LONG_NS ? fmin(worst, gain) : worst;
            done++;
            if (options.all) {
                bench_row(name, gain, "of fused", BENCH_INFO, 0);
            }
        }
        drop(&both[0]);
        drop(&both[1]);
    }
    if (done > 0) {
        bench_row("ops apart, geometric mean", exp(logs / done), "of fused", BENCH_AT_LEAST, 1.05);
        bench_row("largest difference of results", far, "of largest", BENCH_INFO, 0);
    }
    if (worst < HUGE_VAL) {
        bench_row("smallest of blocks from 0.3 ms on", worst, "of fused", BENCH_AT_LEAST, 0.7);
    }
    return bench_end();
}
