/* 06_errors.c - what mistakes look like. tc never aborts, exits or prints: a bad call gives a
 * poisoned tensor or a status, the text says what was given, what was expected and where in the
 * user's file, and everything made before stays usable.
 *
 * Prints each mistake with the text of tc_error, then the run of a program made before them.
 *
 * Build, from the project's root: cc -O2 -I. examples/06_errors.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

static int n_wrong;

static void show(const char *what, tc_status status, tc_status expected, const char *text)
{
    printf("  %s\n    %s\n", what, text);
    n_wrong += status != expected || !text[0];
}

/* A call that gives a status, and whose error it is. */
#define SHOW(what, expected, call, object)                                                         \
    do {                                                                                           \
        tc_status status = (call);                                                                 \
        show(what, status, expected, tc_error(object));                                            \
    } while (0)

/* A call that gives a tensor. */
#define SHOW_TENSOR(what, expected, tensor)                                                        \
    do {                                                                                           \
        tc_tensor shown = (tensor);                                                                \
        SHOW(what, expected, tc_status_of(shown), shown);                                          \
    } while (0)

int main(void)
{
    static float in[12], out[12], expected[12];
    static const double three[3] = {1, 2, 3};
    tc_ctx *ctx;
    tc_program *f, *g;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < 12; i++) {
        in[i] = (float)i;
        expected[i] = in[i] * 0.5f + 1;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    tc_tensor five = tc_input(ctx, "five", TC_F32, 5);
    tc_tensor y = tc_add(tc_mul(x, 0.5), 1);
    CHECK_OK(tc_compile(y, &f), y);

    printf("mistakes, and what tc says\n");
    tc_tensor bad = tc_add(x, five);
    SHOW_TENSOR("shapes that do not broadcast", TC_ERR_SHAPE, bad);
    SHOW_TENSOR("what follows from it has the same first cause", TC_ERR_SHAPE,
                tc_sqrt(tc_mul(bad, 2)));
    SHOW_TENSOR("an axis that is not there", TC_ERR_AXIS, tc_sum(x, TC_AXES(2), false));
    SHOW_TENSOR("a size that cannot be", TC_ERR_SHAPE, tc_reshape(x, 5, -1));
    SHOW("a buffer that is too short", TC_ERR_BUFFER,
         tc_run(f, TC_BUFS(TC_BUF(in, 11)), TC_BUFS(TC_BUF(out, 12))), f);
    SHOW("a buffer of another dtype", TC_ERR_BUFFER,
         tc_run(f, TC_BUFS(TC_BUF(three, 3)), TC_BUFS(TC_BUF(out, 12))), f);
    SHOW("an output that overlaps an input by half", TC_ERR_BUFFER,
         tc_run(f, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(in + 6, 12))), f);

    tc_scope_begin(ctx);
    tc_tensor inner = tc_mul(x, 3);
    tc_scope_end(ctx);
    SHOW_TENSOR("a tensor whose scope has ended", TC_ERR_HANDLE, tc_neg(inner));

    tc_options strict = {.cc = "/nowhere/cc",
                         .fallback = TC_FALLBACK_REFUSE,
                         .no_disk_cache = true,
                         .backend = "cpu"};
    tc_tensor z = tc_sub(x, 7);
    SHOW("no compiler, and interpreting refused", TC_ERR_COMPILER,
         tc_compile_fn(TC_TENSORS(x), TC_TENSORS(z), &strict, &g), ctx);

    double us, worst = 0;
    printf("and nothing is lost: the program made at the start still runs\n");
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(out, 12))));
    REPORT_OP_BY_OP(tc_add(tc_mul(tc_borrow(ctx, in, TC_F32, 3, 4), 0.5), 1), us);
    for (int i = 0; i < 12; i++) {
        worst = fmax(worst, fabs(out[i] - expected[i]));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return report_check(worst, 0, "error") || n_wrong;
}
