/* 05_lazy.c - the lazy form: no program in sight. Conway's Game of Life, with a glider that flies
 * around a board whose edges meet.
 *
 * Tensors are recorded as usual; whoever wants a value (tc_read, tc_print, tc_keep) has it computed
 * then, by code that is compiled once and remembered. Each generation lives in a scope of its own,
 * tc_keep carries the board out of it, and memory stays flat however long the loop runs.
 *
 * Prints the corner with the glider, the time of a generation, nodes alive early and late.
 * Build, from the project's root: cc -O2 -I. examples/05_lazy.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "life_plain.h"

/* A cell lives if it and its neighbours are three, or four and it lived before. */
static tc_tensor generation(tc_tensor board)
{
    tc_tensor three = tc_add(tc_add(tc_roll(board, 1, 0), tc_roll(board, -1, 0)), board);
    tc_tensor nine = tc_add(tc_add(tc_roll(three, 1, 1), tc_roll(three, -1, 1)), three);
    tc_tensor lives = tc_logical_or(tc_eq(nine, 3), tc_logical_and(tc_eq(nine, 4), board));
    return tc_cast(lives, TC_U8);
}

int main(void)
{
    tc_ctx *ctx;
    tc_stats early, late;
    double times[3] = {0};
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    plain_fill();
    tc_tensor board = tc_copy_in(ctx, start, TC_U8, SIZE, SIZE);
    printf("Life on %d x %d cells; the corner with the glider:\n", SIZE, SIZE);
    CHECK_OK(tc_print(stdout, tc_slice(tc_slice(board, 0, 0, 4, 1), 1, 0, 6, 1)), ctx);
    times[0] = now_us();
    for (int i = 0; i < GENERATIONS; i++) {
        tc_scope_begin(ctx);
        board = tc_keep(generation(board));
        tc_scope_end(ctx);
        if (i == 9) {
            tc_stats(ctx, &early);
            times[1] = now_us();
        }
    }
    CHECK_OK(tc_read(board, found, N), board);
    times[2] = now_us();
    tc_stats(ctx, &late);
    printf("  the first 10 generations, compile included: %.1f ms; the other %d: %.1f us each\n",
           (times[1] - times[0]) / 1e3, GENERATIONS - 10,
           (times[2] - times[1]) / (GENERATIONS - 10));
    printf("  nodes alive after 10: %lld, after %d: %lld; bytes %lld and %lld; compiles %lld\n",
           (long long)early.nodes, GENERATIONS, (long long)late.nodes, (long long)early.graph_bytes,
           (long long)late.graph_bytes, (long long)late.compiles);
    tc_ctx_free(ctx);
    return report_check(plain_wrong(), 0, "number of different cells") ||
           late.graph_bytes > early.graph_bytes + 4096;
}
