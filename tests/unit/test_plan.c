/* tests/unit/test_plan.c - what planning does to a graph before anything is fused. */
#include "inside.h"

#include "tc_test.h"

static tci_node *leaf(tci_graph *g, int n)
{
    tci_dim shape = n;
    tci_node *x = tci_graph_node(g, TCI_OP_INPUT, TC_F32, 1, &shape, 0, NULL, 0, NULL);
    x->value.i = g->n_nodes; /* told apart by it */
    return x;
}

/* The nearest divisor, by trying: the larger of two, from a fourth of want to below its double. */
static int64_t nearest_divisor(int64_t n, int64_t want)
{
    for (int64_t far = 0; far < want; far++) {
        if (n % (want + far) == 0) {
            return want + far;
        }
        if (4 * (want - far) >= want && n % (want - far) == 0) {
            return want - far;
        }
    }
    return 0;
}

/* How many elements a chunk of a sum over n elements has; *padded: of how many. */
static int64_t chunk_of(tci_scratch *s, int64_t n, int64_t *padded)
{
    tci_graph g;
    tci_graph_init(&g, s, NULL);
    tci_node *x = tci_graph_node(&g, TCI_OP_INPUT, TC_F32, 1, &n, 0, NULL, 0, NULL);
    int64_t axis = 0;
    tci_node *sum = tci_graph_node(&g, TCI_OP_SUM, TC_F32, 0, NULL, 1, &x, 1, &axis);
    tci_str orders = {.s = s};
    tci_table forced = tci_table_in(s, sizeof(bool));
    const tci_algo a = {s, &g, {.vector_bytes = 32}, &orders, &forced};
    tci_plan_algorithm(&a, &sum, 1);
    const tci_node *parts = sum->in[0]->in[0]; /* of the sum of the partial sums */
    REQUIRE(parts->op == TCI_OP_RESHAPE && parts->rank == 2);
    *padded = parts->in[0]->shape[0];
    return parts->shape[1];
}

TEST(a_cut_reduction_has_chunks_of_a_near_divisor)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    for (int i = 0; i < 2000; i++) {
        int64_t n = i == 0 ? 100000007 : i < 1000 ? 65536 + i : 65536 + tct_random_below(1 << 24);
        int64_t padded, chunk = chunk_of(&s, n, &padded), best = nearest_divisor(n, 32768);
        CHECK_EQ_INT(chunk, best ? best : 32768);
        CHECK_EQ_INT(padded, best ? n : (n + 32767) / 32768 * 32768);
    }
    tci_scratch_free(&s);
}

/* exp(a large CAT) becomes exp(a tree), which the graph has already, to be kept in memory. */
TEST(a_node_that_was_there_before_stays_forced)
{
    tci_scratch s;
    tci_graph g;
    tci_node *parts[10], *pair[2], *roots[2];
    tci_dim sizes[3] = {8, 2, 10};
    int64_t axis = 0;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    tci_graph_init(&g, &s, NULL);
    for (int i = 0; i < 10; i++) {
        parts[i] = leaf(&g, 1);
    }
    pair[0] = tci_graph_node(&g, TCI_OP_CAT, TC_F32, 1, &sizes[0], 8, parts, 1, &axis);
    pair[1] = tci_graph_node(&g, TCI_OP_CAT, TC_F32, 1, &sizes[1], 2, parts + 8, 1, &axis);
    tci_node *tree = tci_graph_node(&g, TCI_OP_CAT, TC_F32, 1, &sizes[2], 2, pair, 1, &axis);
    tci_node *flat = tci_graph_node(&g, TCI_OP_CAT, TC_F32, 1, &sizes[2], 10, parts, 1, &axis);
    roots[0] = tci_graph_node(&g, TCI_OP_EXP, TC_F32, 1, &sizes[2], 1, &tree, 0, NULL);
    roots[1] = tci_graph_node(&g, TCI_OP_EXP, TC_F32, 1, &sizes[2], 1, &flat, 0, NULL);
    tci_str orders = {.s = &s};
    tci_table forced = tci_table_in(&s, sizeof(bool));
    tci_algo a = {&s, &g, {.vector_bytes = 32}, &orders, &forced};
    tci_table_add(&forced, roots[0]);
    tci_plan_algorithm(&a, roots, 2);
    CHECK(roots[0] == roots[1]);
    CHECK(tci_table_has(&forced, roots[0]));
    tci_scratch_free(&s);
}

TEST_MAIN
