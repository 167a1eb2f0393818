/* Products of one operand, which share a launch if each is too short for several threads: bits are
 * those of the interpreter, with and without epilogues, of constant and given weights, and of the
 * gradients of all weights. */
#include "inside.h"

#include "tc_test.h"

enum { PRODUCTS = 8, ROWS = 48, DEPTH = 64, COLUMNS = 64 };

static float x[ROWS * DEPTH], w[PRODUCTS][DEPTH * COLUMNS], b[COLUMNS];
static float out[2][PRODUCTS][ROWS * COLUMNS], grads[2][PRODUCTS][DEPTH * COLUMNS];

static void fill(float *v, int n, int seed)
{
    for (int i = 0; i < n; i++) {
        v[i] = (float)((i * 7 + seed * 5 + i / 13) % 31) / 16 - 0.9f;
    }
}

static tc_tensor weights(tc_ctx *ctx, bool given, int i, int columns)
{
    return given ? tc_input(ctx, "w", TC_F32, DEPTH, columns)
                 : tc_borrow(ctx, w[i], TC_F32, DEPTH, columns);
}

/* Fills out[which] and grads[which]; returns the launches, -1 where there is none. Columns differ
 * from product to product where `odd`. */
static int run(const char *backend, bool given, bool odd, int which)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1, .threads = 2};
    tc_tensor in[PRODUCTS + 2], y[2 * PRODUCTS], of[PRODUCTS], loss;
    tc_buf ins[PRODUCTS + 2], outs[2 * PRODUCTS];
    tc_program *f = NULL;
    int n = 0, steps = -1;
    REQUIRE(!tc_ctx_make(&ctx, &o));
    tc_tensor xs = in[n] = tc_input(ctx, "x", TC_F32, ROWS, DEPTH);
    ins[n++] = TC_BUF(x, ROWS * DEPTH);
    loss = tc_full(ctx, 0, TC_F32);
    for (int i = 0; i < PRODUCTS; i++) {
        int columns = odd ? COLUMNS - 7 * i : COLUMNS;
        of[i] = weights(ctx, given, i, columns);
        if (given) {
            in[n] = of[i];
            ins[n++] = TC_BUF(w[i], DEPTH * columns);
        }
        tc_tensor bias = tc_borrow(ctx, b, TC_F32, columns);
        y[i] = tc_maximum(tc_add(tc_matmul(xs, of[i]), bias), 0);
        outs[i] = TC_BUF(out[which][i], ROWS * columns);
        loss = tc_add(loss, tc_sum(tc_square(y[i]), TC_ALL, false));
        outs[PRODUCTS + i] = TC_BUF(grads[which][i], DEPTH * columns);
    }
    int n_out = given ? 2 * PRODUCTS : PRODUCTS;
    if (given) {
        CHECK(!tc_grad(loss, of, PRODUCTS, y + PRODUCTS));
    }
    CHECK_MSG(!tc_compile_fn(TC_TENSORS_N(in, n), TC_TENSORS_N(y, n_out), NULL, &f), "%s",
              tc_error(y[0]));
    for (int twice = 0; twice < 2 && f; twice++) {
        CHECK_MSG(!tc_run(f, (tc_bufs){ins, n}, (tc_bufs){outs, n_out}), "%s", tc_error(f));
    }
    steps = f ? f->code->n_steps : -1;
    tc_program_free(f);
    tc_ctx_free(ctx);
    return steps;
}

TEST(products_of_one_operand_have_the_bits_of_each)
{
    fill(x, ROWS * DEPTH, 1);
    fill(b, COLUMNS, 2);
    for (int i = 0; i < PRODUCTS; i++) {
        fill(w[i], DEPTH * COLUMNS, 3 + i);
    }
    for (int form = 0; form < 4; form++) {
        bool given = form & 1, odd = form & 2;
        memset(out, 0, sizeof(out));
        memset(grads, 0, sizeof(grads));
        if (run("cpu", given, odd, 0) < 0) {
            SKIP("no C compiler");
        }
        CHECK(run("interp", given, odd, 1) > 0);
        CHECK(!memcmp(out[0], out[1], sizeof(out[0])));
        CHECK(!memcmp(grads[0], grads[1], sizeof(grads[0])));
        CHECK(out[0][0][1] != out[0][1][1]);
    }
}

TEST_MAIN
