/* bench/train.c - one training step: forward, backward and update of a two-layer perceptron with
 * cross-entropy (batch 128, 784-512-10) as one program. Peer: the same step in PyTorch's eager
 * mode. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"

enum { BATCH = 128, IN = 784, HIDDEN = 512, OUT = 10 };

static float w1[IN * HIDDEN], b1[HIDDEN], w2[HIDDEN * OUT], b2[OUT], images[BATCH * IN];
static int64_t labels[BATCH];

static void fill(float *x, int n, float scale)
{
    unsigned seed = 7;
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) / 16777216.0f - 0.5f) * scale;
    }
}

typedef struct step {
    tc_program *program;
    float loss;
} step;

static void run_step(void *arg)
{
    step *s = (step *)arg;
    if (tc_run(s->program, TC_BUFS(TC_BUF(images, BATCH * IN), TC_BUF(labels, BATCH)),
               TC_BUFS(TC_BUF(&s->loss, 1)))) {
        fprintf(stderr, "%s\n", tc_error(s->program));
        exit(1);
    }
}

static tc_program *compile_step(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, BATCH, IN);
    tc_tensor y = tc_input(ctx, "y", TC_I64, BATCH);
    tc_tensor p[4] = {tc_param(ctx, w1, TC_F32, IN, HIDDEN), tc_param(ctx, b1, TC_F32, HIDDEN),
                      tc_param(ctx, w2, TC_F32, HIDDEN, OUT), tc_param(ctx, b2, TC_F32, OUT)};
    tc_tensor hidden = tc_relu(tc_add(tc_matmul(x, p[0]), p[1]));
    tc_tensor loss = tc_cross_entropy(tc_add(tc_matmul(hidden, p[2]), p[3]), y);
    tc_tensor grads[4], outs[5] = {loss};
    tc_program *f = NULL;
    if (tc_grad(loss, p, 4, grads)) {
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        outs[1 + i] = tc_assign(p[i], tc_sub(p[i], tc_mul(0.1, grads[i])));
    }
    tc_tensor in[2] = {x, y};
    if (tc_compile_fn((tc_tensors){in, 2}, (tc_tensors){outs, 5}, NULL, &f)) {
        fprintf(stderr, "%s\n", tc_error(ctx));
    }
    return f;
}

static void measure(int threads)
{
    tc_ctx *ctx;
    tc_options o = {0};
    o.threads = threads;
    if (tc_ctx_make(&ctx, &o)) {
        return;
    }
    step s = {compile_step(ctx), 0};
    if (s.program) {
        char name[64];
        tc_program_info info;
        bench_side side = {.name = "step", .run = run_step, .arg = &s};
        bench_measure(&side, 1, 21, 50);
        tc_program_get_info(s.program, &info);
        snprintf(name, sizeof(name), "training step, %d thread%s", threads, threads > 1 ? "s" : "");
        bench_row(name, side.ns / 1e6, "ms", BENCH_INFO, 0);
        bench_row(name, info.n_kernels, "kernels", BENCH_INFO, 0);
        tc_program_free(s.program);
    }
    tc_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv, "train");
    fill(w1, IN * HIDDEN, 0.05f);
    fill(w2, HIDDEN * OUT, 0.1f);
    fill(images, BATCH * IN, 2.0f);
    for (int i = 0; i < BATCH; i++) {
        labels[i] = i % OUT;
    }
    measure(1);
    measure(2);
    return bench_end();
}
