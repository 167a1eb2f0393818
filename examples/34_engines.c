/* 34_engines.c - one network on every engine that is installed: tc's own code, onnxruntime,
 * OpenVINO and XLA, by name. Engines are looked for in TC_ENGINES (a Python's site-packages, say)
 * and in the usual places: pip install onnxruntime openvino fastatomstruct-xla-cpu. Without any,
 * the network runs by tc alone.
 *
 * Prints every backend with what was found or is missing, the time of a run by each, fastest first,
 * and how far its results are from the interpreter's.
 *
 * Build, from the project's root: cc -O2 -I. examples/34_engines.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc_engines.h"

#include "example.h"

enum { ROWS = 128, WIDTH = 96, LAYERS = 4, MOST = 16 };

static float in[ROWS * WIDTH], out[ROWS * WIDTH], want[ROWS * WIDTH];
static float weights[LAYERS][WIDTH * WIDTH];

static void run(tc_tensor x, tc_tensor y, const char *backend, float *to)
{
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE};
    tc_program *f;
    CHECK_OK(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f), y);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, ROWS * WIDTH)), TC_BUFS(TC_BUF(to, ROWS * WIDTH))), f);
    tc_program_free(f);
}

int main(void)
{
    const tc_backend_entry *e;
    tc_backend_time times[MOST];
    tc_ctx *ctx;
    int n = 0;
    double worst = 0;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        in[i] = (float)(i * 37 % 101) * 0.02f - 1;
    }
    for (int i = 0; i < LAYERS * WIDTH * WIDTH; i++) {
        weights[i / (WIDTH * WIDTH)][i % (WIDTH * WIDTH)] = (float)(i * 53 % 199) * 0.001f - 0.1f;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, WIDTH), y = x;
    for (int i = 0; i < LAYERS; i++) {
        tc_tensor h = tc_gelu(tc_matmul(y, tc_borrow(ctx, weights[i], TC_F32, WIDTH, WIDTH)));
        y = tc_layer_norm(tc_add(y, h), TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    }
    for (int i = 0; (e = tc_backend_at(i)); i++) {
        printf("%-9s %s\n", e->name, e->usable ? e->found : e->why);
    }
    CHECK_OK(tc_time_backends(TC_TENSORS(x), TC_TENSORS(y), 20, times, MOST, &n), y);
    run(x, y, "interp", want);
    for (int i = 0; i < n; i++) {
        double far = 0;
        run(x, y, times[i].name, out);
        for (int k = 0; k < ROWS * WIDTH; k++) {
            far = fmax(far, fabs((double)out[k] - want[k]));
        }
        printf("%-9s %8.1f us a run, compiled in %.0f ms, at most %.1g from interp\n",
               times[i].name, times[i].us, times[i].first_ms, far);
        worst = fmax(worst, far);
    }
    tc_ctx_free(ctx);
    return report_check(worst, 1e-4, "largest difference of any engine");
}
