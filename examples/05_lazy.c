/* 05_lazy.c - the lazy form: no program in sight. Conway's Game of Life, with a glider that flies
 * around a board whose edges meet.
 *
 * Tensors are recorded as usual; whoever wants a value (tc_read, tc_print, tc_keep) has it computed
 * then, by code that is compiled once and remembered. Each generation lives in a scope of its own,
 * tc_keep carries the board out of it, and memory stays flat however long the loop runs.
 *
 * Prints the corner with the glider, the time of a generation, nodes and bytes alive early and
 * late, then one generation fused and op by op.
 *
 * Build, from the project's root: cc -O2 -I. examples/05_lazy.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { SIZE = 256, N = SIZE * SIZE, GENERATIONS = 1000 };
static uint8_t start[N], plain[N], plain_next[N], found[N];

/* The board moved by one along an axis, around the edge. */
static tc_tensor roll(tc_tensor x, int axis, int by)
{
    return tc_cat(TC_TENSORS(tc_slice(x, axis, -by, TC_END, 1), tc_slice(x, axis, 0, -by, 1)),
                  axis);
}

/* A cell lives if it and its neighbours are three, or four and it lived before. */
static tc_tensor generation(tc_tensor board)
{
    tc_tensor three = tc_add(tc_add(roll(board, 0, 1), roll(board, 0, -1)), board);
    tc_tensor nine = tc_add(tc_add(roll(three, 1, 1), roll(three, 1, -1)), three);
    tc_tensor lives = tc_logical_or(tc_eq(nine, 3), tc_logical_and(tc_eq(nine, 4), board));
    return tc_cast(lives, TC_U8);
}

static void plain_generation(void)
{
    for (int y = 0; y < SIZE; y++) {
        for (int x = 0; x < SIZE; x++) {
            int nine = 0;
            for (int d = 0; d < 9; d++) {
                nine += plain[(y + d / 3 + SIZE - 1) % SIZE * SIZE + (x + d % 3 + SIZE - 1) % SIZE];
            }
            plain_next[y * SIZE + x] = nine == 3 || (nine == 4 && plain[y * SIZE + x]);
        }
    }
    memcpy(plain, plain_next, N);
}

int main(void)
{
    static const int glider[5] = {1, SIZE + 2, 2 * SIZE, 2 * SIZE + 1, 2 * SIZE + 2};
    tc_ctx *ctx;
    tc_program *f;
    tc_stats early, late;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < 5; i++) {
        start[glider[i]] = 1;
    }
    for (int i = N / 2; i < N; i++) {
        start[i] = i % SIZE > 8 && (i * 2654435761u >> 28) < 5; /* soup in the lower half */
    }
    memcpy(plain, start, N);

    tc_tensor board = tc_copy_in(ctx, start, TC_U8, SIZE, SIZE);
    printf("Life on %d x %d cells; the corner with the glider:\n", SIZE, SIZE);
    CHECK_OK(tc_print(stdout, tc_slice(tc_slice(board, 0, 0, 4, 1), 1, 0, 6, 1)), ctx);
    double begin_us = now_us(), early_us = 0;
    for (int i = 0; i < GENERATIONS; i++) {
        tc_scope_begin(ctx);
        board = tc_keep(generation(board));
        tc_scope_end(ctx);
        if (i == 9) {
            tc_stats(ctx, &early);
            early_us = now_us();
        }
    }
    CHECK_OK(tc_read(board, found, N), board);
    double late_us = now_us();
    tc_stats(ctx, &late);
    late_us = (late_us - early_us) / (GENERATIONS - 10);
    printf("  the first 10 generations, compile included: %.1f ms; the other %d: %.1f us each\n",
           (early_us - begin_us) / 1e3, GENERATIONS - 10, late_us);
    printf("  nodes alive after 10: %lld, after %d: %lld; bytes %lld and %lld; compiles %lld\n",
           (long long)early.nodes, GENERATIONS, (long long)late.nodes,
           (long long)early.graph_bytes, (long long)late.graph_bytes, (long long)late.compiles);

    int wrong = 0;
    for (int i = 0; i < GENERATIONS; i++) {
        plain_generation();
    }
    for (int i = 0; i < N; i++) {
        wrong += plain[i] != found[i];
    }
    tc_tensor x = tc_input(ctx, "board", TC_U8, SIZE, SIZE);
    tc_tensor next = generation(x);
    double us;
    CHECK_OK(tc_compile(next, &f), next);
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(start, N)), TC_BUFS(TC_BUF(found, N))));
    REPORT_OP_BY_OP(generation(tc_borrow(ctx, start, TC_U8, SIZE, SIZE)), us);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return report_check(wrong, 0, "number of different cells") ||
           late.graph_bytes > early.graph_bytes + 4096;
}
