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
    tci_table whole = tci_table_in(s, sizeof(bool)), images = tci_table_in(s, sizeof(bool));
    const tci_algo a = {.s = s,
                        .g = &g,
                        .machine = {.vector_bytes = 32},
                        .orders = &orders,
                        .forced = &forced,
                        .whole = &whole,
                        .images = &images};
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
    tci_table whole = tci_table_in(&s, sizeof(bool)), images = tci_table_in(&s, sizeof(bool));
    tci_algo a = {.s = &s,
                  .g = &g,
                  .machine = {.vector_bytes = 32},
                  .orders = &orders,
                  .forced = &forced,
                  .whole = &whole,
                  .images = &images};
    tci_table_add(&forced, roots[0]);
    tci_plan_algorithm(&a, roots, 2);
    CHECK(roots[0] == roots[1]);
    CHECK(tci_table_has(&forced, roots[0]));
    tci_scratch_free(&s);
}

/* ---- running sums in linked parts ---- */

/* x's numbers in rows that are read across those of memory. */
static tci_node *turned(tci_graph *g, tci_node *x)
{
    const int64_t order[2] = {1, 0};
    tci_dim shape[2] = {x->shape[1], x->shape[0]};
    tci_node *y = tci_build_reshape(g, x, 2, shape);
    return tci_graph_node(g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, 2, x->shape, 1, &y, 2, order);
}
static tci_node *running_difference(tci_graph *g, tci_node *x, tci_node *y)
{
    tci_node *less[2] = {x, y};
    return tci_build_scan(g, tci_build_ew(g, TCI_OP_SUB, less), 1, false, TCI_MODE_ADD);
}
static tci_node *running_less_turned(tci_graph *g, tci_node *x)
{
    return running_difference(g, x, turned(g, x));
}
static tci_node *running_turned_less(tci_graph *g, tci_node *x)
{
    return running_difference(g, turned(g, x), x);
}
static tci_node *running_plain(tci_graph *g, tci_node *x)
{
    return tci_build_scan(g, x, 1, false, TCI_MODE_ADD);
}

/* ---- rows that are read once ---- */

typedef tci_node *(*rows_of)(tci_graph *g, tci_node *x);

static tci_node *softmax(tci_graph *g, tci_node *x)
{
    return tci_build_softmax(g, x, 1, false);
}
static tci_node *log_softmax(tci_graph *g, tci_node *x)
{
    return tci_build_softmax(g, x, 1, true);
}
static tci_node *losses(tci_graph *g, tci_node *x)
{
    tci_node *target = tci_graph_node(g, TCI_OP_INPUT, TC_I32, 1, x->shape, 0, NULL, 0, NULL);
    return tci_build_cross_entropy(g, x, target);
}

/* Whether a load reads all of its operand, element by element. */
static bool reads_all(const tci_kernel *k, const tci_kinst *load)
{
    tci_dim points = 1;
    for (int a = 0; a < k->n_axes; a++) {
        points = load->axes >> a & 1 ? tci_dim_mul(points, k->axes[a].size) : points;
    }
    return points == k->operands[tci_kinst_number(load)].n;
}

/* How many stages of the plan read all of x; how many kernels. */
static int readings(tci_scratch *s, const tci_plan *p, int *kernels)
{
    int n = 0;
    *kernels = 0;
    for (int t = 0; t < p->n_steps; t++) {
        int before = n;
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int stage = 0; stage < k->n_stages; stage++) {
            bool *live = TCI_NEW_ARRAY(s, bool, k->n_insts + 1), reads = false;
            tci_cost_mark(k, stage, true, live);
            for (int i = 0; i < k->n_insts; i++) {
                const tci_kinst *in = &k->insts[i];
                reads |= live[i] && in->op == TCI_K_LOAD && reads_all(k, in) &&
                         p->steps[t].operands[tci_kinst_number(in)] == 0;
            }
            n += reads;
        }
        *kernels += n > before;
    }
    return n;
}

/* What a machine's plan makes of x[rows, n]. */
static tci_plan *plan_of(tci_scratch *s, rows_of make, tc_dtype dtype, int64_t rows, int64_t n,
                         tci_machine machine)
{
    tci_graph *g = TCI_NEW(s, tci_graph);
    tci_graph_init(g, s, NULL);
    tci_dim shape[2] = {rows, n};
    tci_node *x = tci_graph_node(g, TCI_OP_INPUT, dtype, 2, shape, 0, NULL, 0, NULL);
    tci_node *root = make(g, x), *inputs[2] = {x, NULL};
    int n_inputs = 1;
    for (int i = 0; i < root->n_in && make == losses; i++) {
        inputs[i] = root->in[i];
        n_inputs = 2;
    }
    tci_node **now = tci_rewrite(s, g, &root, 1);
    tci_plan *p = tci_plan_make(s, g, inputs, n_inputs, NULL, 0, now, 1, machine);
    tci_plan_verify(s, p);
    return p;
}

/* Which operand is read across its rows does not matter. */
TEST(parts_of_turned_operands_are_not_linked)
{
    static const struct {
        rows_of make;
        bool linked;
    } cases[] = {{running_plain, true}, {running_less_turned, false}, {running_turned_less, false}};
    const tci_machine blocks = {.vector_bytes = 16, .block_threads = 1024, .in_order_blocks = true};
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        tci_scratch s;
        bool linked = false;
        tci_scratch_init(&s);
        if (setjmp(s.escape)) {
            CHECK_MSG(false, "%s", s.message);
            return;
        }
        tci_plan *p = plan_of(&s, cases[i].make, TC_F32, 2, 1000000, blocks);
        for (int k = 0; k < p->n_kernels; k++) {
            linked |= tci_kernel_earlier(p->kernels[k]) != NULL;
        }
        CHECK_MSG(linked == cases[i].linked, "case %d", i);
        tci_scratch_free(&s);
    }
}

/* Of rows of x[rows, n] as a machine's plan makes them; *kernels: that read x; *online: whether a
 * class is ONLINE. */
static int count_readings(rows_of make, tc_dtype dtype, int64_t rows, int64_t n,
                          tci_machine machine, int *kernels, bool *online)
{
    tci_scratch s;
    int got = -1;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return -1;
    }
    tci_plan *p = plan_of(&s, make, dtype, rows, n, machine);
    got = readings(&s, p, kernels);
    *online = false;
    for (int i = 0; i < p->n_kernels; i++) {
        for (int r = 0; r < p->kernels[i]->n_reds; r++) {
            *online |= p->kernels[i]->reds[r].op == TCI_RED_ONLINE;
        }
    }
    tci_scratch_free(&s);
    return got;
}

/* Far rows once for the largest and the sum, and once more where each element has a result. Near
 * ones stay where they were read. */
TEST(far_rows_are_read_once)
{
    const tci_machine processor = {.vector_bytes = 32};
    const tci_machine blocks = {.vector_bytes = 16, .block_threads = 1024};
    const tci_machine same = {.vector_bytes = 32, .reproducible = true};
    static const struct {
        rows_of make;
        tc_dtype dtype;
        int64_t rows, n;
        int machine, readings;
    } cases[] = {
        {softmax, TC_F32, 100, 262144, 0, 2},      {softmax, TC_F32, 100, 262143, 0, 3},
        {softmax, TC_F64, 100, 131072, 0, 2},      {softmax, TC_F64, 100, 131071, 0, 3},
        {log_softmax, TC_BF16, 70, 1000000, 0, 2}, {log_softmax, TC_BF16, 70, 500000, 0, 3},
        {losses, TC_F32, 4096, 300000, 0, 1},      {losses, TC_F32, 4096, 50257, 0, 2},
        {losses, TC_F32, 4096, 50257, 1, 1},       {losses, TC_BF16, 4096, 50257, 1, 1},
        {softmax, TC_F32, 8192, 131072, 1, 2},     {softmax, TC_F32, 8192, 32768, 1, 3},
        {softmax, TC_F32, 8192, 32769, 1, 2},      {losses, TC_F32, 4096, 300000, 2, 2},
        {softmax, TC_F32, 8192, 131072, 2, 3},
    };
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        tci_machine m = cases[i].machine == 0 ? processor : cases[i].machine == 1 ? blocks : same;
        bool online, element = cases[i].make != losses;
        int kernels, got = count_readings(cases[i].make, cases[i].dtype, cases[i].rows, cases[i].n,
                                          m, &kernels, &online);
        CHECK_MSG(got == cases[i].readings, "case %d: read %d times, expected %d", i, got,
                  cases[i].readings);
        CHECK_MSG(online == (cases[i].readings == 1 + element), "case %d", i);
    }
}

/* Rows that are cut come from memory once for the largest and the sum: the parts of both are made
 * by one kernel. */
TEST(rows_that_are_cut_come_from_memory_once)
{
    const tci_machine processor = {.vector_bytes = 32};
    const tci_machine blocks = {.vector_bytes = 16, .block_threads = 1024};
    const tci_machine same = {.vector_bytes = 32, .reproducible = true};
    bool online;
    int kernels;
    count_readings(softmax, TC_F32, 3, 1000000, processor, &kernels, &online);
    CHECK(kernels == 2 && !online);
    count_readings(losses, TC_BF16, 8, 262144, processor, &kernels, &online);
    CHECK(kernels == 1 && !online);
    count_readings(softmax, TC_F32, 3, 1000000, same, &kernels, &online);
    CHECK(kernels == 1 && !online); /* no part: each row by one kernel */
    count_readings(log_softmax, TC_F64, 10, 160000, blocks, &kernels, &online);
    CHECK(kernels == 2 && !online);
    count_readings(softmax, TC_F32, 10, 4000000, blocks, &kernels, &online);
    CHECK(kernels == 2 && online); /* long parts: a block does not hold one */
    count_readings(softmax, TC_F32, 24, 30522, blocks, &kernels, &online);
    CHECK(kernels == 2 && !online);
    count_readings(softmax, TC_F32, 64, 30522, blocks, &kernels, &online);
    CHECK(kernels == 1 && !online); /* whole: there are many, and registers hold each */
    count_readings(softmax, TC_F32, 128, 40000, blocks, &kernels, &online);
    CHECK(kernels == 2 && !online);
}

/* ---- powers of what is never above 0 ---- */

static tci_node *unary(tci_graph *g, int op, tci_node *x)
{
    return tci_build_ew(g, op, &x);
}
static tci_node *binary(tci_graph *g, int op, tci_node *x, tci_node *y)
{
    tci_node *both[2] = {x, tci_build_broadcast(g, y, x->rank, x->shape)};
    return tci_build_ew(g, op, both);
}
static tci_node *most(tci_graph *g, tci_node *x)
{
    return tci_build_reduce(g, TCI_OP_MAX, x, TC_AXES(1), true);
}
static tci_node *power(tci_graph *g, tci_node *x)
{
    return unary(g, TCI_OP_EXP, x);
}
static tci_node *written_softmax(tci_graph *g, tci_node *x)
{
    tci_node *e = power(g, binary(g, TCI_OP_SUB, x, most(g, x)));
    return binary(g, TCI_OP_DIV, e, tci_build_reduce(g, TCI_OP_SUM, e, TC_AXES(1), true));
}
static tci_node *bell(tci_graph *g, tci_node *x)
{
    return power(g, unary(g, TCI_OP_NEG, unary(g, TCI_OP_SQUARE, x)));
}
static tci_node *turned_bell(tci_graph *g, tci_node *x)
{
    return power(g, binary(g, TCI_OP_MUL, unary(g, TCI_OP_NEG, x), x));
}
static tci_node *tent(tci_graph *g, tci_node *x)
{
    return power(g, unary(g, TCI_OP_NEG, unary(g, TCI_OP_ABS, x)));
}
static tci_node *above(tci_graph *g, tci_node *x)
{
    return power(g, unary(g, TCI_OP_NEG, binary(g, TCI_OP_SUB, x, most(g, x))));
}
static tci_node *off_others(tci_graph *g, tci_node *x)
{
    return power(g, binary(g, TCI_OP_SUB, x, most(g, unary(g, TCI_OP_NEG, x))));
}
static tci_node *off_sum(tci_graph *g, tci_node *x)
{
    tci_node *sum = tci_build_reduce(g, TCI_OP_SUM, x, TC_AXES(1), true);
    return power(g, binary(g, TCI_OP_SUB, x, sum));
}
/* Rounded down the largest is no longer the largest. */
static tci_node *off_rounded(tci_graph *g, tci_node *x)
{
    tci_node *m = tci_build_cast(g, tci_build_cast(g, most(g, x), TC_BF16), TC_F32);
    return power(g, binary(g, TCI_OP_SUB, x, m));
}
static tci_node *off_running(tci_graph *g, tci_node *x)
{
    return power(g, binary(g, TCI_OP_SUB, x, tci_build_scan(g, x, 1, false, TCI_MODE_MAX)));
}

/* Kernels have EXPN for EXP where nothing above 0 can come; a sum of powers that becomes ONLINE was
 * recognised before. */
TEST(powers_of_what_is_never_above_0_have_a_prim_of_their_own)
{
    const tci_machine processor = {.vector_bytes = 32};
    const tci_machine blocks = {.vector_bytes = 16, .block_threads = 1024};
    static const struct {
        rows_of make;
        tc_dtype dtype;
        int64_t n;
        bool below; /* whether its powers are of what is never above 0 */
    } cases[] = {
        {softmax, TC_F32, 100, true},         {softmax, TC_BF16, 100, true},
        {softmax, TC_F64, 100, true},         {log_softmax, TC_F32, 100, true},
        {losses, TC_BF16, 100, true},         {softmax, TC_F32, 300000, true},
        {written_softmax, TC_F32, 100, true}, {written_softmax, TC_BF16, 100, true},
        {written_softmax, TC_F16, 100, true}, {bell, TC_F32, 100, true},
        {turned_bell, TC_F32, 100, true},     {tent, TC_BF16, 100, true},
        {power, TC_F32, 100, false},          {above, TC_F32, 100, false},
        {off_others, TC_F32, 100, false},     {off_sum, TC_F32, 100, false},
        {off_rounded, TC_F32, 100, false},    {off_running, TC_F32, 100, false},
    };
    tci_scratch s;
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    for (int i = 0; i < 2 * TCI_COUNT(cases); i++) {
        rows_of make = cases[i / 2].make;
        const tci_plan *p = plan_of(&s, make, cases[i / 2].dtype, 4096, cases[i / 2].n,
                                    i % 2 ? blocks : processor);
        int of_any = 0, of_less = 0;
        for (int j = 0; j < p->n_kernels; j++) {
            for (int v = 0; v < p->kernels[j]->n_insts; v++) {
                const tci_kinst *in = &p->kernels[j]->insts[v];
                of_any += in->op == TCI_K_PRIM && in->prim == TCI_P_EXP;
                of_less += in->op == TCI_K_PRIM && in->prim == TCI_P_EXPN;
            }
        }
        CHECK_MSG((of_less > 0) == cases[i / 2].below && (of_any > 0) != cases[i / 2].below,
                  "case %d: %d of what is never above 0, %d others", i / 2, of_less, of_any);
    }
    tci_scratch_free(&s);
}

TEST_MAIN
