/* bench/rows.c - kernels along rows and across them: softmax, layer_norm and rows moved elsewhere
 * against a copy of the same bytes, sums against reading them. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <unistd.h>

#include "copy.h"

enum { ROWS = 2048, COLUMNS = 4096, N = ROWS * COLUMNS, ROUNDS = 15 };

typedef struct kernel {
    tc_program *program;
    tc_buf in[2], out;
    int n_in;
} kernel;

static void kernel_run(void *arg)
{
    const kernel *k = arg;
    tc_bufs in = {k->in, k->n_in}, out = {&k->out, 1};
    if (tc_run(k->program, in, out)) {
        fprintf(stderr, "%s\n", tc_error(k->program));
        exit(1);
    }
}

static kernel kernel_make(tc_tensors ins, tc_tensor y, float *to, float *from, float *also,
                          int threads)
{
    kernel k = {.n_in = ins.n};
    tc_options options = {.threads = threads};
    if (tc_compile_fn(ins, TC_TENSORS(y), &options, &k.program)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
    k.in[0] = TC_BUF(from, N);
    k.in[1] = TC_BUF(also, N);
    k.out = TC_BUF(to, tc_count(y));
    return k;
}

/* A row of the table: `bytes` are what the kernel moves; the other side moves N floats, read and,
 * unless is_read, written. */
static void row(const char *name, kernel k, bool is_read, double bytes, double goal, float *to,
                const float *from, int threads)
{
    bench_side sides[BENCH_COPIES + 1];
    bench_move moves[BENCH_COPIES];
    int n = is_read ? 1 : BENCH_COPIES;
    bench_copy_sides(sides, moves, to, from, N, threads);
    if (is_read) {
        moves[0].part = BENCH_FORM(read);
    }
    sides[n] = (bench_side){.name = "tc", .run = kernel_run, .arg = &k};
    bench_measure(sides, n + 1, ROUNDS, 10);
    const bench_side *other = bench_fastest(sides, n);
    double same = bytes / ((is_read ? 4.0 : 8.0) * N); /* bytes in units of the other side's */
    char text[64];
    snprintf(text, sizeof(text), "%s, %d thread%s", name, threads, threads > 1 ? "s" : "");
    bench_row(text, bench_ratio(other, &sides[n]) * same, is_read ? "of read" : "of copy",
              BENCH_AT_LEAST, goal);
    bench_row(text, bytes / sides[n].ns, "GB/s", BENCH_INFO, 0);
    tc_program_free(k.program);
}

int main(int argc, char **argv)
{
    tc_ctx *ctx;
    bench_begin(argc, argv, "rows");
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    float *a = bench_floats(N), *b = bench_floats(N), *to = bench_floats(N);
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, COLUMNS);
    tc_tensor z = tc_input(ctx, "z", TC_F32, COLUMNS, ROWS);
    tc_tensor softmax = tc_softmax(x, -1);
    tc_tensor norm = tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    tc_tensor all = tc_sum(x, TC_ALL, 0), rows = tc_sum(x, TC_AXES(1), 0);
    tc_tensor columns = tc_sum(x, TC_AXES(0), 0), turned = tc_add(tc_transpose(x, 0, 1), z);
    tc_tensor heads = tc_permute(tc_reshape(x, 32, 512, 8, 64), 0, 2, 1, 3);
    int most = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int t = 1; t <= 2 && t <= most; t++) {
        double once = 4.0 * N;
        row("softmax 2048x4096", kernel_make(TC_TENSORS(x), softmax, to, a, b, t), false, 2 * once,
            0.7, to, a, t);
        row("layer_norm 2048x4096", kernel_make(TC_TENSORS(x), norm, to, a, b, t), false, 2 * once,
            0.7, to, a, t);
        row("sum of all", kernel_make(TC_TENSORS(x), all, to, a, b, t), true, once, 0.8, to, a, t);
        row("sums of rows", kernel_make(TC_TENSORS(x), rows, to, a, b, t), true, once, 0.8, to, a,
            t);
        row("sums of columns", kernel_make(TC_TENSORS(x), columns, to, a, b, t), true, once, 0.8,
            to, a, t);
        row("transpose + add", kernel_make(TC_TENSORS(x, z), turned, to, a, b, t), false, 3 * once,
            0.8, to, a, t);
        row("transpose", kernel_make(TC_TENSORS(x), tc_transpose(x, 0, 1), to, a, b, t), false,
            2 * once, 0.8, to, a, t);
        row("heads 32x512x8x64", kernel_make(TC_TENSORS(x), heads, to, a, b, t), false, 2 * once,
            0.8, to, a, t);
    }
    free(a);
    free(b);
    free(to);
    tc_ctx_free(ctx);
    return bench_end();
}
