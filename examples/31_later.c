/* 31_later.c - no waiting for a compiler: the interpreter serves the first runs, and native code
 * takes over between two of them. A progress bar goes to stderr.
 *
 * Prints when the first result came and by which backend, when native code took over, and that the
 * bits are the same.
 *
 * Build, from the project's root: cc -O2 -I. examples/31_later.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { ROWS = 256, WIDTH = 64, LAYERS = 6 };

static float in[ROWS * WIDTH], out[ROWS * WIDTH], first[ROWS * WIDTH];
static float weights[LAYERS][WIDTH * WIDTH];

/* On the background thread. */
static void show(void *user, const tc_progress *p)
{
    static const char *const phases[] = {"plan", "source", "compile", "done", "failed"};
    char bar[21] = "....................";
    int done = p->files ? 20 * p->files_done / p->files : 0;
    (void)user;
    memset(bar, '#', (size_t)done);
    fprintf(stderr, "\r  [%s] %-8s%s", bar, phases[p->phase],
            p->phase >= TC_PHASE_DONE ? "\n" : "");
}

int main(void)
{
    tc_options options = {.stance = TC_STANCE_LATER, .progress = show, .no_disk_cache = true};
    tc_ctx *ctx;
    tc_program *f;
    tc_program_info info;
    if (tc_ctx_make(&ctx, &options)) {
        return 1;
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        in[i] = (float)(i * 37 % 101) * 0.02f - 1;
    }
    for (int i = 0; i < LAYERS * WIDTH * WIDTH; i++) {
        weights[i / (WIDTH * WIDTH)][i % (WIDTH * WIDTH)] = (float)(i * 53 % 199) * 0.001f - 0.1f;
    }
    tc_tensor y = tc_input(ctx, "x", TC_F32, ROWS, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        tc_tensor h = tc_gelu(tc_matmul(y, tc_borrow(ctx, weights[i], TC_F32, WIDTH, WIDTH)));
        y = tc_layer_norm(tc_add(y, h), TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    }
    double begin = now_us();
    CHECK_OK(tc_compile(y, &f), y);
    tc_bufs inputs = TC_BUFS(TC_BUF(in, ROWS * WIDTH));
    tc_bufs outputs = TC_BUFS(TC_BUF(out, ROWS * WIDTH));
    CHECK_OK(tc_run(f, inputs, outputs), f);
    printf("first result after %.1f ms, ", (now_us() - begin) * 1e-3);
    tc_program_get_info(f, &info);
    printf("by %s\n", info.backend);
    memcpy(first, out, sizeof(out));
    int runs = 1;
    while (!tc_program_ready(f)) {
        CHECK_OK(tc_run(f, inputs, outputs), f);
        runs++;
    }
    if (tc_program_wait(f, -1)) {
        printf("the interpreter goes on: %s\n", tc_error(f));
    }
    CHECK_OK(tc_run(f, inputs, outputs), f);
    tc_program_get_info(f, &info);
    double us;
    bool same = !memcmp(first, out, sizeof(out));
    BEST_US(us, tc_run(f, inputs, outputs));
    printf("%d runs and %.0f ms later by %s, %.0f us a run, the same bits: %s\n", runs,
           (now_us() - begin) * 1e-3, info.backend, us, same ? "yes" : "no");
    tc_program_free(f);
    tc_ctx_free(ctx);
    return same || info.may_differ ? 0 : 1;
}
