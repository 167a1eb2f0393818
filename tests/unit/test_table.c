/* Tables of what passes know of nodes: items, growth, memory; passes within passes. */
#include "inside.h"

#include "tc_test.h"

enum { TABLE_NODES = 10000 };

typedef struct fixture {
    tci_scratch s;
    tci_graph g; /* of a context: dropped node by node */
} fixture;

static fixture *open_fixture(void)
{
    fixture *f = calloc(1, sizeof(*f));
    tci_scratch_init(&f->s);
    tci_graph_init(&f->g, NULL, NULL);
    return f;
}

static void close_fixture(fixture *f)
{
    tci_graph_deinit(&f->g);
    tci_scratch_free(&f->s);
    free(f);
}

static tci_node *input(tci_graph *g)
{
    tci_dim size = 3;
    return tci_graph_node(g, TCI_OP_INPUT, TC_F32, 1, &size, 0, NULL, 0, NULL);
}

/* x, -x, --x ...: each needs the one before. */
static tci_node **chain(tci_scratch *s, tci_graph *g, int n)
{
    tci_node **nodes = TCI_NEW_ARRAY(s, tci_node *, n);
    for (int i = 0; i < n; i++) {
        nodes[i] = i ? tci_graph_node(g, TCI_OP_NEG, TC_F32, 1, nodes[0]->shape, 1, &nodes[i - 1],
                                      0, NULL)
                     : input(g);
    }
    return nodes;
}

TEST(items_are_zero_until_written_and_never_move)
{
    fixture *f = open_fixture();
    REQUIRE(!setjmp(f->s.escape));
    tci_table t = tci_table_in(&f->s, sizeof(int64_t));
    tci_node *first = input(&f->g);
    CHECK(tci_table_find(&t, first) == NULL);
    int64_t *item = tci_table_at(&t, first);
    CHECK_EQ_INT(*item, 0);
    *item = -7;
    for (int i = 1; i < TABLE_NODES; i++) { /* made while the table is in use */
        tci_node *n = input(&f->g);
        int64_t *next = tci_table_at(&t, n);
        CHECK_MSG(*next == 0, "item %d", i);
        *next = i;
    }
    CHECK(tci_table_at(&t, first) == item);
    CHECK_EQ_INT(*item, -7);
    for (int i = 1; i < TABLE_NODES; i++) {
        CHECK_EQ_INT(*(int64_t *)tci_table_find(&t, f->g.slots[i]), i);
    }
    close_fixture(f);
}

TEST(tables_know_nothing_of_each_other)
{
    fixture *f = open_fixture();
    REQUIRE(!setjmp(f->s.escape));
    tci_table numbers = tci_table_in(&f->s, sizeof(int32_t));
    tci_table odd = tci_table_in(&f->s, sizeof(bool)), seen = tci_table_in(&f->s, sizeof(bool));
    tci_node **nodes = chain(&f->s, &f->g, TABLE_NODES);
    for (int i = TABLE_NODES - 1; i >= 0; i--) { /* the last slot first */
        *(int32_t *)tci_table_at(&numbers, nodes[i]) = i + 1;
        CHECK(i % 2 == 0 || tci_table_add(&odd, nodes[i]));
        CHECK(tci_table_add(&seen, nodes[i]));
        CHECK(!tci_table_add(&seen, nodes[i]));
    }
    for (int i = 0; i < TABLE_NODES; i++) {
        CHECK_EQ_INT(*(int32_t *)tci_table_find(&numbers, nodes[i]), i + 1);
        CHECK_EQ_INT(tci_table_has(&odd, nodes[i]), i % 2);
    }
    close_fixture(f);
}

/* One node of a large graph costs a page, and a pointer for each page below. */
TEST(only_the_pages_of_nodes_that_were_met_are_there)
{
    fixture *f = open_fixture();
    REQUIRE(!setjmp(f->s.escape));
    tci_node **nodes = chain(&f->s, &f->g, TABLE_NODES);
    size_t before = f->s.bytes;
    tci_table t = tci_table_in(&f->s, sizeof(int64_t));
    *(int64_t *)tci_table_at(&t, nodes[TABLE_NODES - 1]) = 1;
    CHECK(tci_table_find(&t, nodes[0]) == NULL);
    CHECK(!tci_table_has(&t, nodes[0]));
    size_t pages = TABLE_NODES / TCI_TABLE_PAGE + 1;
    size_t most = pages * sizeof(char *) + TCI_TABLE_PAGE * sizeof(int64_t) + 64;
    CHECK_MSG(f->s.bytes - before <= most, "%zu bytes", f->s.bytes - before);
    close_fixture(f);
}

static int64_t memory_of_a_table(fixture *f, tci_node *n, bool *had)
{
    tci_table t = tci_table_on(&f->g, sizeof(int64_t));
    int64_t before = f->g.bytes, held;
    *had = tci_table_at(&t, n) != NULL;
    held = f->g.bytes - before;
    tci_table_free(&t);
    CHECK_EQ_INT(f->g.bytes, before);
    return held;
}

TEST(in_a_context_memory_is_given_back_and_may_run_out)
{
    fixture *f = open_fixture();
    REQUIRE(!setjmp(f->s.escape));
    tci_node **nodes = chain(&f->s, &f->g, 1000);
    bool had;
    long live = tci_test_alloc_live;
    CHECK(memory_of_a_table(f, nodes[999], &had) > 0);
    CHECK(had);
    for (int at = 1; at <= 2; at++) { /* the list of pages, the page */
        tci_test_alloc_count = 0;
        tci_test_alloc_fail_at = at;
        memory_of_a_table(f, nodes[999], &had);
        tci_test_alloc_fail_at = 0;
        CHECK(!had);
        CHECK_EQ_INT(f->g.error, TC_ERR_MEMORY);
    }
    CHECK_EQ_INT(tci_test_alloc_live, live);
    close_fixture(f);
}

TEST(a_long_chain_is_sorted_inputs_first)
{
    fixture *f = open_fixture();
    REQUIRE(!setjmp(f->s.escape));
    tci_node **nodes = chain(&f->s, &f->g, 5 * TABLE_NODES);
    tci_node *const roots[3] = {nodes[5 * TABLE_NODES - 1], nodes[7], nodes[5 * TABLE_NODES - 1]};
    tci_node_list list = tci_graph_sort(&f->s, roots, 3);
    REQUIRE(list.n == 5 * TABLE_NODES);
    for (int i = 0; i < list.n; i++) {
        CHECK(list.items[i] == nodes[i]);
    }
    close_fixture(f);
}

/* sum(x * 3.25 + 1.25), softmax of x: of a LITERAL each, over several kernels. */
static void program(tci_graph *g, tci_node **x, tci_node *literals[2], tci_node *roots[2])
{
    tci_dim shape[2] = {40, 50};
    int64_t axis = 1;
    *x = tci_graph_node(g, TCI_OP_INPUT, TC_F32, 2, shape, 0, NULL, 0, NULL);
    tci_value v[2] = {{.f = 3.25}, {.f = 1.25}};
    tci_node *wide[2];
    for (int i = 0; i < 2; i++) {
        literals[i] = tci_graph_literal(g, TC_F32, v[i]);
        wide[i] = tci_build_broadcast(g, literals[i], 2, shape);
    }
    tci_node *mul[2] = {*x, wide[0]};
    tci_node *add[2] = {tci_build_ew(g, TCI_OP_MUL, mul), wide[1]};
    tci_node *y = tci_build_ew(g, TCI_OP_ADD, add);
    roots[0] = tci_graph_node(g, TCI_OP_SUM, TC_F32, 1, shape, 1, &y, 1, &axis);
    roots[1] = tci_graph_node(g, TCI_OP_SOFTMAX, TC_F32, 2, shape, 1, x, 1, &axis);
}

/* A table in use while the same graph is differentiated, rewritten, printed and planned, twice: it
 * keeps what it has, and the second round finds what the first one did. */
TEST(a_pass_may_run_within_another)
{
    fixture *f = open_fixture();
    tci_graph g;
    tci_node *x, *literals[2], *roots[2];
    if (setjmp(f->s.escape)) {
        CHECK_MSG(false, "%s", f->s.message);
        close_fixture(f);
        return;
    }
    tci_graph_init(&g, &f->s, NULL);
    program(&g, &x, literals, roots);
    tci_node_list list = tci_graph_sort(&f->s, roots, 2);
    tci_table numbers = tci_table_in(&f->s, sizeof(int32_t));
    for (int i = 0; i < list.n; i++) {
        *(int32_t *)tci_table_at(&numbers, list.items[i]) = i + 1;
    }
    tci_value one = {.f = 1};
    tci_node *seed = tci_graph_const(&g, TC_F32, one), *grads[2];
    seed = tci_build_broadcast(&g, seed, roots[1]->rank, roots[1]->shape);
    tci_str texts[2] = {{.s = &f->s}, {.s = &f->s}};
    for (int turn = 0; turn < 2; turn++) {
        tci_grad_build(&f->s, &g, (tci_grad_pairs){&roots[1], &seed, 1}, &x, 1, &grads[turn]);
        tci_node **now = tci_rewrite(&f->s, &g, roots, 2);
        tci_graph_print(&texts[turn], &f->s, now, 2);
        tci_machine machine = {.vector_bytes = 32};
        tci_plan *p = tci_plan_make(&f->s, &g, &x, 1, literals, 2, now, 2, machine);
        tci_plan_verify(&f->s, p);
        tci_fusion_print(&texts[turn], p->fusion);
        tci_plan_print(&texts[turn], p);
    }
    CHECK_STR(tci_str_text(&texts[1]), tci_str_text(&texts[0]));
    CHECK(grads[0] && grads[1] == grads[0]);
    for (int i = 0; i < list.n; i++) {
        CHECK_EQ_INT(*(int32_t *)tci_table_find(&numbers, list.items[i]), i + 1);
    }
    close_fixture(f);
}

TEST_MAIN
