/* The naive evaluator: every family of nodes against numbers worked out by hand or by plain
 * loops. */
#include "inside.h"

#include "tc_test.h"

typedef struct rk {
    tci_scratch s;
    tci_graph g;
    tci_node *inputs[8];
    const void *memory[8];
    int n;
} rk;

static rk *rk_open(void)
{
    rk *k = calloc(1, sizeof *k);
    tci_scratch_init(&k->s);
    tci_graph_init(&k->g, &k->s, NULL);
    return k;
}

static void rk_close(rk *k)
{
    tci_graph_deinit(&k->g);
    tci_scratch_free(&k->s);
    free(k);
}

static tci_node *rk_input(rk *k, tc_dtype t, int rank, const tci_dim *shape, const void *memory)
{
    tci_node *n = tci_graph_node(&k->g, TCI_OP_INPUT, t, rank, shape, 0, NULL, 0, NULL);
    k->inputs[k->n] = n;
    k->memory[k->n++] = memory;
    return n;
}

static tc_status rk_eval(rk *k, tci_node *root, void *out, bool wide)
{
    if (!root) {
        CHECK_MSG(false, "%s", k->g.message);
        return TC_ERR_INTERNAL;
    }
    return tci_reference_eval(k->inputs, k->memory, k->n, &root, &out, 1, wide);
}

static tci_node *rk_ew(rk *k, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_build_ew(&k->g, op, in);
}

#define DIMS(...) (const tci_dim[]){__VA_ARGS__}

TEST(elementwise_rows)
{
    static const float x[] = {-2.5f, -0.0f, 0.5f, NAN, 7.0f},
                       y[] = {2.0f, 3.0f, -0.75f, 1.0f, -2.0f};
    static const struct {
        int op;
        float want[5];
    } rows[] = {
        {TCI_OP_ADD, {-0.5f, 3.0f, -0.25f, NAN, 5.0f}},
        {TCI_OP_MAXIMUM, {2.0f, 3.0f, 0.5f, NAN, 7.0f}},
        {TCI_OP_MINIMUM, {-2.5f, -0.0f, -0.75f, NAN, -2.0f}},
        {TCI_OP_REMAINDER, {1.5f, -0.0f, -0.25f, NAN, -1.0f}},
        {TCI_OP_DIV, {-1.25f, -0.0f, 0.5f / -0.75f, NAN, -3.5f}},
    };
    for (int r = 0; r < TCI_COUNT(rows); r++) {
        rk *k = rk_open();
        tci_node *a = rk_input(k, TC_F32, 1, DIMS(5), x), *b = rk_input(k, TC_F32, 1, DIMS(5), y);
        float out[5];
        CHECK_EQ_INT(rk_eval(k, rk_ew(k, rows[r].op, a, b), out, false), TC_OK);
        for (int i = 0; i < 5; i++) {
            float w = rows[r].want[i];
            CHECK_MSG(w != w ? out[i] != out[i] : out[i] == w, "row %d, %d: %g, want %g", r, i,
                      (double)out[i], (double)w);
        }
        rk_close(k);
    }
}

TEST(wide_uses_libm_and_keeps_doubles)
{
    static const float x[] = {-1.25f, 0.3f, 9.0f};
    rk *k = rk_open();
    tci_node *a = rk_input(k, TC_F32, 1, DIMS(3), x);
    tci_node *y = rk_ew(k, TCI_OP_SIN, rk_ew(k, TCI_OP_EXP, a, NULL), NULL);
    float wide[3], narrow[3];
    CHECK_EQ_INT(rk_eval(k, y, wide, true), TC_OK);
    CHECK_EQ_INT(rk_eval(k, y, narrow, false), TC_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(wide[i] == (float)sin(exp((double)x[i])));
        CHECK_CLOSE(narrow[i], wide[i], i < 2 ? 1e-6 : 1e-2);
    }
    rk_close(k);
}

TEST(integers_wrap_and_divide_like_python)
{
    static const int8_t x[] = {127, -7, -128, 5}, y[] = {1, 3, -1, 0};
    rk *k = rk_open();
    tci_node *a = rk_input(k, TC_I8, 1, DIMS(4), x), *b = rk_input(k, TC_I8, 1, DIMS(4), y);
    int8_t out[4];
    CHECK_EQ_INT(rk_eval(k, rk_ew(k, TCI_OP_ADD, a, b), out, true), TC_OK);
    CHECK_EQ_INT(out[0], -128);
    CHECK_EQ_INT(out[2], 127);
    CHECK_EQ_INT(rk_eval(k, rk_ew(k, TCI_OP_REMAINDER, a, b), out, false), TC_OK);
    CHECK_EQ_INT(out[1], 2);
    CHECK_EQ_INT(out[2], 0);
    CHECK_EQ_INT(out[3], 0);
    CHECK_EQ_INT(rk_eval(k, rk_ew(k, TCI_OP_POW, a, b), out, false), TC_OK);
    CHECK_EQ_INT(out[1], (int8_t)-343);
    CHECK_EQ_INT(out[3], 1);
    rk_close(k);
}

TEST(movement)
{
    static const int32_t x[] = {0, 1, 2, 3, 4, 5};
    rk *k = rk_open();
    tci_graph *g = &k->g;
    tci_node *a = rk_input(k, TC_I32, 2, DIMS(2, 3), x);
    int32_t out[36];
    CHECK_EQ_INT(rk_eval(k, tci_build_transpose(g, a, 0, 1), out, false), TC_OK);
    CHECK(memcmp(out, (int32_t[]){0, 3, 1, 4, 2, 5}, 24) == 0);
    CHECK_EQ_INT(rk_eval(k, tci_build_flip(g, a, 1), out, false), TC_OK);
    CHECK(memcmp(out, (int32_t[]){2, 1, 0, 5, 4, 3}, 24) == 0);
    CHECK_EQ_INT(
        rk_eval(k, tci_build_cat(g, (tci_node *[]){a, tci_build_slice(g, a, 1, 2, 3, 1)}, 2, 1),
                out, false),
        TC_OK);
    CHECK(memcmp(out, (int32_t[]){0, 1, 2, 2, 3, 4, 5, 5}, 32) == 0);
    tci_value nine = {.i = 9};
    CHECK_EQ_INT(rk_eval(k, tci_build_pad(g, a, 1, 1, -1, tci_graph_const(g, TC_I32, nine)), out,
                         false),
                 TC_OK);
    CHECK(memcmp(out, (int32_t[]){9, 0, 1, 9, 3, 4}, 24) == 0);
    CHECK_EQ_INT(rk_eval(k, tci_build_window(g, a, 1, (int64_t[]){1, 2, 1, 1}), out, false), TC_OK);
    CHECK(memcmp(out, (int32_t[]){0, 1, 1, 2, 3, 4, 4, 5}, 32) == 0);
    rk_close(k);
}

TEST(gather_reports_an_index_outside)
{
    static const float x[] = {10, 20, 30};
    int64_t index[] = {2, -3, 1};
    rk *k = rk_open();
    tci_node *a = rk_input(k, TC_F32, 1, DIMS(3), x), *i = rk_input(k, TC_I64, 1, DIMS(3), index);
    float out[3];
    CHECK_EQ_INT(rk_eval(k, tci_build_gather(&k->g, a, 0, i), out, false), TC_OK);
    CHECK(out[0] == 30 && out[1] == 10 && out[2] == 20);
    index[1] = 3;
    CHECK_EQ_INT(rk_eval(k, tci_build_gather(&k->g, a, 0, i), out, false), TC_ERR_INDEX);
    CHECK(out[0] == 30 && out[1] == 0 && out[2] == 20);
    rk_close(k);
}

TEST(reductions_scan_and_contraction)
{
    float x[24], y[12], out[24];
    for (int i = 0; i < 24; i++) {
        x[i] = (float)((i * 7) % 11) - 3.0f;
        y[i % 12] = (float)((i * 5) % 7) - 2.0f;
    }
    rk *k = rk_open();
    tci_graph *g = &k->g;
    tci_node *a = rk_input(k, TC_F32, 3, DIMS(2, 3, 4), x),
             *b = rk_input(k, TC_F32, 2, DIMS(4, 3), y);
    const int outer[] = {0, 2}, last[] = {1};
    CHECK_EQ_INT(rk_eval(k, tci_build_reduce(g, TCI_OP_SUM, a, (tc_axes){outer, 2, false}, false),
                         out, false),
                 TC_OK);
    for (int j = 0; j < 3; j++) {
        float want = 0;
        for (int i = 0; i < 2; i++) {
            for (int c = 0; c < 4; c++) {
                want += x[i * 12 + j * 4 + c];
            }
        }
        CHECK(out[j] == want);
    }
    int64_t at[8];
    CHECK_EQ_INT(rk_eval(k, tci_build_reduce(g, TCI_OP_ARGMAX, a, (tc_axes){last, 1, false}, false),
                         at, false),
                 TC_OK);
    for (int i = 0; i < 8; i++) {
        int best = 0;
        for (int j = 1; j < 3; j++) {
            best = x[i / 4 * 12 + j * 4 + i % 4] > x[i / 4 * 12 + best * 4 + i % 4] ? j : best;
        }
        CHECK_EQ_INT(at[i], best);
    }
    CHECK_EQ_INT(rk_eval(k, tci_build_scan(g, a, 1, false, TCI_MODE_ADD), out, false), TC_OK);
    CHECK(out[0] == x[0] && out[8] == x[0] + x[4] + x[8] && out[23] == x[15] + x[19] + x[23]);
    CHECK_EQ_INT(rk_eval(k, tci_build_matmul(g, a, b), out, false), TC_OK);
    for (int i = 0; i < 18; i++) {
        float want = 0;
        for (int c = 0; c < 4; c++) {
            want = fmaf(x[i / 3 * 4 + c], y[c * 3 + i % 3], want);
        }
        CHECK(out[i] == want);
    }
    rk_close(k);
}

TEST(composites)
{
    static const float x[] = {1, 2, 3, 1, 1, 1};
    static const int32_t target[] = {2, 0};
    rk *k = rk_open();
    tci_graph *g = &k->g;
    tci_node *a = rk_input(k, TC_F32, 2, DIMS(2, 3), x),
             *t = rk_input(k, TC_I32, 1, DIMS(2), target);
    float out[6];
    CHECK_EQ_INT(rk_eval(k, tci_build_softmax(g, a, -1, false), out, true), TC_OK);
    CHECK_CLOSE(out[2], 0.66524095577, 1e-7);
    CHECK_CLOSE(out[4], 1.0 / 3, 1e-7);
    CHECK_EQ_INT(rk_eval(k, tci_build_cross_entropy(g, a, t), out, true), TC_OK);
    CHECK_CLOSE(out[0], (0.40760596444 + 1.09861228867) / 2, 1e-7);
    const int axis[] = {1};
    tci_value eps = {.f = 0.5};
    tci_node *norm = tci_build_layer_norm(g, a, (tc_axes){axis, 1, false}, NULL, NULL,
                                          tci_graph_const(g, TC_F64, eps));
    CHECK_EQ_INT(rk_eval(k, norm, out, true), TC_OK);
    CHECK_CLOSE(out[0], -1 / sqrt(2.0 / 3 + 0.5), 1e-7);
    CHECK_CLOSE(out[5], 0.0, 1e-7);
    rk_close(k);
}

TEST(strided_leaf_and_half)
{
    static const float memory[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rk *k = rk_open();
    tci_node *n = tci_graph_node(&k->g, TCI_OP_DATA, TC_F32, 2, DIMS(2, 3), 0, NULL, 0, NULL);
    tci_storage storage = {.refs = 1,
                           .borrowed = true,
                           .data = (void *)(uintptr_t)memory,
                           .bytes = sizeof memory};
    tci_dim strides[] = {-4, 1};
    n->storage = &storage;
    n->strides = strides;
    n->offset = 5;
    float out[6];
    CHECK_EQ_INT(rk_eval(k, n, out, false), TC_OK);
    CHECK(memcmp(out, (float[]){5, 6, 7, 1, 2, 3}, sizeof out) == 0);
    uint16_t half[6];
    tci_value third = {.f = 1.0 / 3};
    tci_node *bf16 = tci_build_cast(&k->g, n, TC_BF16);
    tci_node *sum = rk_ew(k, TCI_OP_ADD, bf16,
                          tci_build_cast(&k->g, tci_graph_const(&k->g, TC_F32, third), TC_BF16));
    CHECK_EQ_INT(rk_eval(k, sum, half, false), TC_OK);
    for (int i = 0; i < 6; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        float got;
        memcpy(&got, &bits, 4);
        CHECK(got == tci_round_bf16(out[i] + tci_round_bf16((float)third.f)));
    }
    n->storage = NULL;
    n->strides = NULL;
    rk_close(k);
}

TEST_MAIN
