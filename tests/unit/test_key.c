/* Requests and their keys: what is keyed, what is not, the copy for the stages that follow. */
#include "inside.h"

#include "tc_test.h"

static tci_graph graph;
static tci_scratch scratch;
static tc_options options;

static void begin(void)
{
    tci_graph_init(&graph, NULL, NULL);
    tci_scratch_init(&scratch);
    memset(&options, 0, sizeof(options));
    options.backend = "interp";
}

static void end(void)
{
    tci_graph_deinit(&graph);
    tci_scratch_free(&scratch);
}

static tci_node *node(int op, int64_t n, int n_in, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_graph_node(&graph, op, TC_F32, 1, &n, n_in, in, 0, NULL);
}

static tci_node *input(int64_t n)
{
    return node(TCI_OP_INPUT, n, 0, NULL, NULL);
}

static char *name(const char *text) /* a graph frees the names of its inputs */
{
    char *copy = tci_heap_get(strlen(text) + 1);
    return strcpy(copy, text);
}

static tci_node *literal(double v)
{
    tci_value value = {.f = v};
    return tci_graph_literal(&graph, TC_F32, value);
}

static tci_request *request_of(tci_node *root)
{
    return tci_request_make(&scratch, NULL, 0, &root, 1, &options, NULL, NULL);
}

/* NULL when making the request escapes; the text is then in scratch.message. */
static tci_request *try_request(tci_node *const *inputs, int n_inputs, tci_node *root)
{
    if (setjmp(scratch.escape)) {
        return NULL;
    }
    return tci_request_make(&scratch, inputs, n_inputs, &root, 1, &options, NULL, NULL);
}

static bool same_key(const tci_request *a, const tci_request *b)
{
    bool same = a->key_bytes == b->key_bytes && !memcmp(a->key, b->key, a->key_bytes);
    CHECK(same == (a->hash.lo == b->hash.lo && a->hash.hi == b->hash.hi));
    return same;
}

/* Code of another tc.h is never taken, though its graphs are the same: a recipe may be another. */
TEST(the_build_is_keyed)
{
    begin();
    const tci_request *r = request_of(node(TCI_OP_SIN, 8, 1, input(8), NULL));
    size_t n = strlen(TCI_BUILD), at = 0;
    while (at + n <= r->key_bytes && memcmp(r->key + at, TCI_BUILD, n)) {
        at++;
    }
    bool by_second = !strncmp(TCI_BUILD, "rooms", 5); /* here another one than in the library */
    CHECK(at + n <= r->key_bytes || by_second);
    end();
}

TEST(names_ids_and_creation_order_are_not_keyed)
{
    begin();
    tci_node *x = input(8), *y = input(8);
    x->name = name("x");
    y->name = name("y");
    tci_request *first = request_of(
        node(TCI_OP_ADD, 8, 2, node(TCI_OP_SIN, 8, 1, x, NULL), node(TCI_OP_COS, 8, 1, y, NULL)));
    tci_node *other_x = input(8);
    (void)input(5);
    tci_node *other_y = input(8);
    other_x->name = name("weights");
    tci_node *cosine = node(TCI_OP_COS, 8, 1, other_y, NULL); /* made before the sine this time */
    tci_node *sine = node(TCI_OP_SIN, 8, 1, other_x, NULL);
    tci_request *second = request_of(node(TCI_OP_ADD, 8, 2, sine, cosine));
    CHECK(same_key(first, second));
    CHECK_EQ_INT(second->n_user_inputs, 2);
    CHECK(second->inputs[0] == other_x && second->inputs[1] == other_y);
    end();
}

TEST(structure_is_keyed)
{
    begin();
    tci_node *x = input(8), *y = input(8);
    tci_request *base = request_of(node(TCI_OP_SUB, 8, 2, x, y));
    CHECK(!same_key(base, request_of(node(TCI_OP_SUB, 8, 2, y, x))));
    CHECK(!same_key(base, request_of(node(TCI_OP_SUB, 8, 2, x, x))));
    CHECK(!same_key(base, request_of(node(TCI_OP_ADD, 8, 2, x, y))));
    CHECK(!same_key(base, request_of(node(TCI_OP_SUB, 9, 2, input(9), input(9)))));
    tci_node *roots[2] = {node(TCI_OP_SUB, 8, 2, x, y), node(TCI_OP_SUB, 8, 2, x, y)};
    tci_request *two = tci_request_make(&scratch, NULL, 0, roots, 2, &options, NULL, NULL);
    CHECK(!same_key(base, two));
    CHECK_EQ_INT(two->n_nodes, 1);
    int64_t n = 8, forward[3] = {0, 0, TCI_MODE_ADD}, back[3] = {0, 1, TCI_MODE_ADD};
    tci_node *a = tci_graph_node(&graph, TCI_OP_SCAN, TC_F32, 1, &n, 1, &x, 3, forward);
    tci_node *b = tci_graph_node(&graph, TCI_OP_SCAN, TC_F32, 1, &n, 1, &x, 3, back);
    CHECK(!same_key(request_of(a), request_of(b)));
    end();
}

TEST(literal_values_are_not_keyed_but_constants_are)
{
    begin();
    tci_node *x = input(8);
    tci_request *a = request_of(node(TCI_OP_MUL, 8, 2, x, literal(3.5)));
    tci_request *b = request_of(node(TCI_OP_MUL, 8, 2, x, literal(-7.25)));
    CHECK(same_key(a, b));
    CHECK_EQ_INT(a->n_literals, 1);
    CHECK_CLOSE(a->literals[0]->value.f, 3.5, 0);
    CHECK_CLOSE(b->literals[0]->value.f, -7.25, 0);
    tci_request *two = request_of(node(TCI_OP_MUL, 8, 2, x, literal(2.0)));
    tci_request *half = request_of(node(TCI_OP_MUL, 8, 2, x, literal(0.5)));
    CHECK(!same_key(a, two));
    CHECK(!same_key(two, half));
    CHECK_EQ_INT(two->n_literals, 0);
    /* the same slot twice is not two slots of equal value */
    tci_node *once = literal(3.5);
    tci_node *sum = node(TCI_OP_ADD, 8, 2, node(TCI_OP_MUL, 8, 2, x, once), once);
    tci_node *sum_of_two = node(TCI_OP_ADD, 8, 2, node(TCI_OP_MUL, 8, 2, x, once), literal(3.5));
    CHECK(!same_key(request_of(sum), request_of(sum_of_two)));
    end();
}

TEST(options_that_change_code_are_keyed)
{
    begin();
    tci_node *y = node(TCI_OP_SIN, 8, 1, input(8), NULL);
    tci_request *base = request_of(y);
    options.threads = 7;
    options.spin_us = 3;
    options.cache_dir = "/nowhere";
    CHECK(same_key(base, request_of(y)));
    options.memory_limit = 5;
    CHECK(!same_key(base, request_of(y)));
    options.memory_limit = 0;
    options.math = TC_MATH_FAST;
    CHECK(!same_key(base, request_of(y)));
    options.math = TC_MATH_EXACT;
    options.cc = "clang"; /* any compiler's code serves */
    CHECK(same_key(base, request_of(y)));
    options.cc = NULL;
    options.verify = true; /* unverified code is not found where it must be verified */
    CHECK(!same_key(base, request_of(y)));
    options.verify = false;
    tci_target target;
    memset(&target, 0, sizeof(target));
    strcpy(target.features, "other");
    CHECK(!same_key(base, tci_request_make(&scratch, NULL, 0, &y, 1, &options, "interp", &target)));
    CHECK(!same_key(base, tci_request_make(&scratch, NULL, 0, &y, 1, &options, "other", &target)));
    end();
}

TEST(evaluated_nodes_and_data_are_captured_leaves)
{
    begin();
    static float memory[64];
    static tci_storage storage = {.refs = 1,
                                  .borrowed = true,
                                  .data = memory,
                                  .bytes = sizeof(memory)};
    tci_node *x = input(8);
    tci_node *middle = node(TCI_OP_EXP, 8, 1, node(TCI_OP_SIN, 8, 1, x, NULL), NULL);
    tci_node *y = node(TCI_OP_ADD, 8, 2, middle, middle);
    middle->storage = &storage;
    tci_request *r = request_of(y);
    CHECK_EQ_INT(r->n_user_inputs, 0);
    CHECK_EQ_INT(r->n_inputs, 1);
    CHECK_EQ_INT(r->n_captured, 1);
    CHECK(r->captured[0] == middle);
    int64_t n = 8, backwards = -2, dense = 1;
    tci_node *data = tci_graph_node(&graph, TCI_OP_DATA, TC_F32, 1, &n, 0, NULL, 0, NULL);
    data->storage = &storage;
    tci_request *as_data = request_of(node(TCI_OP_ADD, 8, 2, data, data));
    CHECK(same_key(r, as_data));
    data->strides = &dense; /* says what is so anyway */
    CHECK(same_key(r, request_of(node(TCI_OP_ADD, 8, 2, data, data))));
    data->strides = &backwards;
    data->offset = 20;
    tci_request *strided = request_of(node(TCI_OP_ADD, 8, 2, data, data));
    CHECK(!same_key(r, strided));
    tci_request_copy copy = tci_request_copy_graph(&scratch, strided, NULL);
    CHECK_EQ_INT(copy.inputs[0]->op, TCI_OP_DATA);
    CHECK_EQ_INT(copy.inputs[0]->strides[0], -2);
    CHECK_EQ_INT(copy.inputs[0]->offset, 14); /* element 0 is 14 above the lowest */
    data->strides = NULL;
    middle->storage = NULL;
    data->storage = NULL;
    end();
}

TEST(inputs_come_in_order_of_creation_also_when_slots_are_reused)
{
    begin();
    tci_node *dropped_a = input(3), *dropped_b = input(3);
    REQUIRE(tci_graph_open_scope(&graph));
    tci_graph_drop(&graph, dropped_a);
    tci_graph_drop(&graph, dropped_b);
    tci_node *first = input(8), *second = input(8), *third = input(8);
    tci_request *r = request_of(
        node(TCI_OP_SUB, 8, 2, node(TCI_OP_SUB, 8, 2, third, second), first));
    REQUIRE(r->n_user_inputs == 3);
    CHECK(r->inputs[0] == first && r->inputs[1] == second && r->inputs[2] == third);
    end();
}

TEST(given_inputs_are_checked)
{
    begin();
    tci_node *x = input(8), *y = input(8), *unused = input(4);
    tci_node *sum = node(TCI_OP_ADD, 8, 2, x, y);
    tci_node *all[3] = {unused, y, x};
    tci_request *r = try_request(all, 3, sum);
    REQUIRE(r);
    CHECK_EQ_INT(r->n_inputs, 3);
    CHECK(r->inputs[0] == unused && r->inputs[2] == x);
    tci_node *too_few[1] = {y};
    CHECK(!try_request(too_few, 1, sum));
    CHECK_HAS(scratch.message, "not in the list");
    tci_node *twice[3] = {y, x, y};
    CHECK(!try_request(twice, 3, sum));
    CHECK_HAS(scratch.message, "twice");
    CHECK(try_request(all, 3, sum)); /* nothing stays behind from the failures */
    options.backend = "no-such";
    CHECK(!try_request(all, 3, sum));
    CHECK_HAS(scratch.message, "no-such");
    end();
}

TEST(the_copy_is_the_same_graph)
{
    begin();
    tci_node *x = input(8), *unused = input(8);
    tci_node *sine = node(TCI_OP_SIN, 8, 1, x, NULL);
    tci_node *y = node(TCI_OP_MUL, 8, 2, sine, literal(3.5));
    tci_node *z = node(TCI_OP_ADD, 8, 2, y, sine);
    tci_node *inputs[2] = {x, unused};
    tci_node *roots[3] = {z, sine, x};
    tci_request *r = tci_request_make(&scratch, inputs, 2, roots, 3, &options, NULL, NULL);
    tci_request_copy c = tci_request_copy_graph(&scratch, r, NULL);
    CHECK(c.roots[0]->op == TCI_OP_ADD && c.roots[0]->in[1] == c.roots[1]);
    CHECK(c.roots[2] == c.inputs[0]);
    CHECK(c.roots[0]->in[0]->in[1] == c.literals[0]);
    CHECK_CLOSE(c.literals[0]->value.f, 0, 0); /* values stay behind */
    CHECK(c.inputs[1]->op == TCI_OP_INPUT && c.inputs[1] != unused);
    CHECK(c.graph != &graph && c.roots[0] != z);
    end();
}

/* Two requests over the same nodes, each made before either is copied, as in a batch: a node has a
 * place of its own in each. */
TEST(requests_that_share_nodes_do_not_disturb_each_other)
{
    begin();
    tci_node *a = input(8), *b = input(8);
    tci_node *difference = node(TCI_OP_SUB, 8, 2, a, b);
    tci_node *sine = node(TCI_OP_SIN, 8, 1, difference, NULL);
    tci_node *const ab[2] = {a, b}, *const ba[2] = {b, a};
    tci_request *one = tci_request_make(&scratch, ab, 2, &difference, 1, &options, NULL, NULL);
    tci_request *two = tci_request_make(&scratch, ba, 2, &sine, 1, &options, NULL, NULL);
    tci_request_copy c = tci_request_copy_graph(&scratch, one, NULL);
    CHECK(c.roots[0]->op == TCI_OP_SUB);
    CHECK(c.roots[0]->in[0] == c.inputs[0] && c.roots[0]->in[1] == c.inputs[1]);
    c = tci_request_copy_graph(&scratch, two, NULL);
    CHECK(c.roots[0]->op == TCI_OP_SIN && c.roots[0]->in[0]->op == TCI_OP_SUB);
    CHECK(c.roots[0]->in[0]->in[0] == c.inputs[1] && c.roots[0]->in[0]->in[1] == c.inputs[0]);
    end();
}

TEST(long_chains_need_no_stack_and_linear_time)
{
    begin();
    tci_node *y = input(8);
    for (int i = 0; i < 100000; i++) {
        y = node(i % 2 ? TCI_OP_SIN : TCI_OP_COS, 8, 1, y, NULL);
    }
    tci_request *r = request_of(y);
    CHECK_EQ_INT(r->n_nodes, 100000);
    tci_request_copy c = tci_request_copy_graph(&scratch, r, NULL);
    CHECK_EQ_INT(c.graph->n_nodes, 100001);
    tci_node *diamond = input(8); /* 2^60 paths */
    for (int i = 0; i < 60; i++) {
        diamond = node(TCI_OP_MUL, 8, 2, diamond, diamond);
    }
    CHECK_EQ_INT(request_of(diamond)->n_nodes, 60);
    end();
}

/* A loader ends a process that is not instrumented at an object that is. */
TEST(instrumented_code_is_for_instrumented_processes)
{
    bool instrumented = false;
#if defined(__SANITIZE_ADDRESS__)
    instrumented = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    instrumented = true;
#endif
#endif
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    CHECK_EQ_INT(tci_cpu_backend()->target(NULL, 0, &target), TC_OK);
    CHECK_MSG(instrumented == (strstr(target.features, " asan") != NULL), "%s", target.features);
}

TEST_MAIN
