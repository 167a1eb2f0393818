/* tests/unit/test_verify.c - verifiers find what is wrong: each invariant is broken once, in a form
 * that was right before and is again after. */
#include "inside.h"

#include "../null_backend.c"
#include "tc_test.h"

static tc_ctx *ctx;
static tci_scratch scratch;

typedef void (*verifier)(tci_scratch *s, const void *form);
static void kernel_verifier(tci_scratch *s, const void *k)
{
    tci_kernel_verify(s, k);
}
static void plan_verifier(tci_scratch *s, const void *p)
{
    tci_plan_verify(s, p);
}
static void interp_verifier(tci_scratch *s, const void *p)
{
    tci_interp_verify(s, p);
}
static void loop_verifier(tci_scratch *s, const void *l)
{
    tci_loop_verify(s, l);
}
static void code_verifier(tci_scratch *s, const void *c)
{
    tci_code_verify(s, c);
}

/* Whether the verifier complains, as of an error of our own. */
static bool complains(verifier verify, const void *form)
{
    if (setjmp(scratch.escape)) {
        return scratch.why == TC_ERR_INTERNAL;
    }
    verify(&scratch, form);
    return false;
}

/* The place holds `wrong` for the time of one look. */
#define BREAK(verify, form, place, wrong)                                                          \
    do {                                                                                           \
        __typeof__(place) right_ = (place);                                                        \
        (place) = (__typeof__(place))(wrong);                                                      \
        CHECK_MSG(complains((verify), (form)), "%s = %s is not found", #place, #wrong);            \
        (place) = right_;                                                                          \
    } while (0)

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tci_scratch_init(&scratch);
}

static void end(void)
{
    tci_scratch_free(&scratch);
    tc_ctx_free(ctx);
}

/* The plan of y on that machine; NULL: it escaped. */
static tci_plan *plan_for(tc_tensor y, tci_machine machine)
{
    tci_node *root = tci_handle_node(y);
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        return NULL;
    }
    tci_request *r = tci_request_make(&scratch, NULL, 0, &root, 1, &tci_ctx_of(ctx)->options, NULL,
                                      NULL);
    tci_request_copy copy = tci_request_copy_graph(&scratch, r, NULL);
    tci_node **now = tci_rewrite(&scratch, copy.graph, copy.roots, 1);
    return tci_plan_make(&scratch, copy.graph, copy.inputs, r->n_inputs, copy.literals,
                         r->n_literals, now, 1, machine);
}

/* On a processor with vectors of so many bytes. */
static tci_plan *plan_on(tc_tensor y, int vector_bytes)
{
    tci_machine machine = {.vector_bytes = vector_bytes};
    return plan_for(y, machine);
}

static tci_plan *plan_of(tc_tensor y)
{
    return plan_on(y, 32);
}

/* Rows of one kernel are multiplied by another, and a third sums them up. */
static tc_tensor two_kernels(void)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 10);
    return tc_cumsum(tc_matmul(tc_softmax(x, 1), tc_transpose(x, 0, 1)), 0);
}

static int find_kx(const tci_kernel *k, tci_kx_op op)
{
    for (int x = 0; x < k->n_kx; x++) {
        if (k->kx[x].op == op) {
            return x;
        }
    }
    CHECK_MSG(false, "the kernel has no index expression %d", op);
    return 0;
}

static void graph_verifier(tci_scratch *s, const void *root)
{
    tci_node *n = *(tci_node *const *)root;
    tci_graph_verify(s, &n, 1);
}

/* Words of a key from a file: products of them may overflow, and counts exceed the operands. */
TEST(words_beyond_all_bounds)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 6);
    tci_node *n = tci_handle_node(tc_slice(x, 0, 1, 6, 2));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[1], INT64_MAX); /* (3 - 1) * step is -2 */
    BREAK(graph_verifier, &n, n->attr[1], -1 - INT64_MAX);
    BREAK(graph_verifier, &n, n->attr[0], -1 - INT64_MAX);
    tci_graph *g = &tci_ctx_of(ctx)->graph;
    int64_t shape[3] = {2, 6, 3}, window[4] = {0, 3, 3, 1};
    tci_node *from = tci_handle_node(x);
    n = tci_graph_node(g, TCI_OP_WINDOW, TC_F32, 3, shape, 1, &from, 4, window);
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[3], INT64_MAX);
    n = tci_handle_node(tc_cholesky(x, false));
    while (n->op != TCI_OP_CHOLESKY) {
        n = n->in[0];
    }
    CHECK(!complains(graph_verifier, &n));
    tci_node *row = tci_handle_node(tc_input(ctx, "row", TC_F32, 6));
    int64_t six = 6;
    n = tci_graph_node(g, TCI_OP_CHOLESKY, TC_F32, 1, &six, 1, &row, 0, NULL);
    CHECK(complains(graph_verifier, &n));
    n = tci_graph_node(g, TCI_OP_SOLVE_TRIANGULAR, TC_F32, 1, &six, 2, (tci_node *[]){row, row}, 1,
                       (int64_t[]){0});
    CHECK(complains(graph_verifier, &n));
    tci_node *starts = tci_handle_node(tc_input(ctx, "starts", TC_F32, 0, 6));
    int64_t square[2] = {6, 6}, scan[3] = {0, 0, TCI_MODE_ADD};
    n = tci_graph_node(g, TCI_OP_SCAN, TC_F32, 2, square, 2, (tci_node *[]){from, starts}, 3, scan);
    CHECK(complains(graph_verifier, &n)); /* 6 is no multiple of 0 */
    int64_t repeat[7] = {1 << 30, 0, 0, 1 << 30, 3, 0, 0};
    n = tci_graph_node(g, TCI_OP_REPEAT, TC_F32, 0, NULL, 0, NULL, 7, repeat);
    CHECK(complains(graph_verifier, &n)); /* 4 * 2^30 operands are not 0 */
    tci_node *bound = tci_build_bound(g, TC_F32, 1, &six);
    int64_t once[7] = {1, 0, 0, 0, 3, 0, 0}, result = (int64_t)1 << 31;
    tci_node *body[3] = {row, bound, bound};
    tci_node *loop = tci_graph_node(g, TCI_OP_REPEAT, TC_F32, 0, NULL, 3, body, 7, once);
    CHECK(!complains(graph_verifier, &loop));
    n = tci_graph_node(g, TCI_OP_RESULT, TC_F32, 1, &six, 1, &loop, 1, &result);
    CHECK(complains(graph_verifier, &n));
    end();
}

/* A word of each kind of attribute, their number, and the number of inputs. */
TEST(nodes)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 10);
    tci_node *n = tci_handle_node(tc_cumsum(x, 0));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[0], 2);
    BREAK(graph_verifier, &n, n->attr[0], -1);
    BREAK(graph_verifier, &n, n->attr[1], 2);
    BREAK(graph_verifier, &n, n->n_attr, 0);
    BREAK(graph_verifier, &n, n->n_in, 0);
    tci_node *starts = tci_handle_node(tc_input(ctx, "starts", TC_F32, 3, 10));
    tci_node *in[2] = {n->in[0], starts};
    tci_graph *g = &tci_ctx_of(ctx)->graph;
    n = tci_graph_node(g, TCI_OP_SCAN, TC_F32, 2, n->shape, 2, in, 3, n->attr);
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[0], 1);
    BREAK(graph_verifier, &n, n->attr[2], TCI_MODE_SET);
    BREAK(graph_verifier, &n, starts->shape[0], 4); /* not equal parts of 6 */
    BREAK(graph_verifier, &n, starts->shape[1], 5);
    BREAK(graph_verifier, &n, starts->dtype, TC_F64);
    n = tci_handle_node(tc_permute(x, 1, 0));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->n_attr, 1);
    BREAK(graph_verifier, &n, n->attr[1], 1);
    n = tci_handle_node(tc_matmul(x, tc_transpose(x, 0, 1)));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[2], -1);
    BREAK(graph_verifier, &n, n->attr[n->n_attr - 1], -1);
    BREAK(graph_verifier, &n, n->n_attr, 2);
    n = tci_handle_node(tc_layer_norm(x, TC_AXES(1), TC_NONE, TC_NONE, 1e-5));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[2], 2);
    BREAK(graph_verifier, &n, n->attr[3], 1);
    BREAK(graph_verifier, &n, n->attr[0], 2);
    n = tci_handle_node(tc_random_bits(ctx, 5, TC_U32, 6));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->dtype, TC_F32);
    BREAK(graph_verifier, &n, n->in[0], tci_handle_node(x));
    BREAK(graph_verifier, &n, n->in[1]->dtype, TC_U32);
    n = tci_handle_node(tc_argsort(x, 1, true));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->dtype, TC_I32);
    BREAK(graph_verifier, &n, n->shape[0], 5);
    BREAK(graph_verifier, &n, n->shape[1], 11);
    BREAK(graph_verifier, &n, n->attr[1], 2);
    n = tci_handle_node(tc_bitcast(x, TC_I32));
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->dtype, TC_I64);
    BREAK(graph_verifier, &n, n->shape[0], 5);
    end();
}

TEST(kernels_that_scatter)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 7, 5), index = tc_input(ctx, "i", TC_I64, 11, 4);
    tc_tensor src = tc_input(ctx, "src", TC_F32, 11, 4), y = tc_scatter_add(x, 0, index, src);
    tci_node *n = tci_handle_node(y);
    CHECK(!complains(graph_verifier, &n));
    BREAK(graph_verifier, &n, n->attr[0], 2);
    BREAK(graph_verifier, &n, n->attr[1], TCI_MODE_COUNT);
    BREAK(graph_verifier, &n, n->in[1], n->in[0]);
    BREAK(graph_verifier, &n, n->in[2], n->in[0]);
    BREAK(graph_verifier, &n, n->in[0], n->in[2]);
    BREAK(graph_verifier, &n, n->dtype, TC_F64);
    tci_plan *p = plan_of(y);
    REQUIRE(p && p->n_kernels == 1 && p->fusion->n_groups == 1);
    BREAK(plan_verifier, p, p->fusion->groups[0].has_scatter, false);
    tci_kernel *k = p->kernels[0];
    REQUIRE(k->n_stores == 2 && k->n_stages == 2 && k->n_outer == 1);
    tci_kstore *begun = &k->stores[0], *store = &k->stores[1];
    CHECK(store->mode == TCI_MODE_ADD && store->guard >= 0 && !complains(kernel_verifier, k));
    BREAK(kernel_verifier, k, store->mode, TCI_MODE_COUNT);
    BREAK(kernel_verifier, k, store->guard, k->n_insts);
    BREAK(kernel_verifier, k, store->guard, store->value); /* no bool */
    BREAK(kernel_verifier, k, k->operands[store->operand].is_updated, false);
    BREAK(kernel_verifier, k, k->stages[1].kind, TCI_STAGE_MAP); /* combines in no order */
    BREAK(kernel_verifier, k, begun->mode, TCI_MODE_ADD);
    BREAK(kernel_verifier, k, begun->stage, 1);                       /* nothing is there yet */
    BREAK(kernel_verifier, k, k->axes[k->stages[0].axes[0]].size, 6); /* not everywhere */
    BREAK(kernel_verifier, k, k->vector, TCI_VEC_INNER);
    int at = find_kx(k, TCI_KX_VALUE), column = tci_kx_axis(k, 0);
    CHECK(k->kx[at].lo == 0 && k->kx[at].hi == 6);
    int row = tci_kx_mul(k, at, 4); /* rows that overlap: two points for one element */
    BREAK(kernel_verifier, k, store->x, tci_kx_add(k, row, column));
    BREAK(kernel_verifier, k, store->x, at);
    BREAK(kernel_verifier, k, store->x, tci_kx_add(k, store->x, tci_kx_axis(k, 1)));
    BREAK(kernel_verifier, k, store->x, tci_kx_add(k, store->x, tci_kx_const(k, 1)));
    end();
}

/* A kernel with a stage over stretches, and one whose stores are apart. */
static tci_kernel *kernel_with(const tci_plan *p, bool stretches)
{
    for (int i = p->n_kernels - 1; i >= 0; i--) {
        tci_kernel *k = p->kernels[i];
        bool apart = k->n_stores == 1 && k->stores[0].apart;
        if (stretches ? k->stages[k->n_stages - 1].from >= 0 : apart) {
            return k;
        }
    }
    return NULL;
}

TEST(kernels_over_an_order)
{
    begin();
    enum { READS = 5000 };
    tci_machine blocks = {.vector_bytes = 16, .block_threads = 1024};
    tc_tensor x = tc_input(ctx, "x", TC_F32, 300, 5), index = tc_input(ctx, "i", TC_I64, READS);
    tc_tensor src = tc_input(ctx, "src", TC_F32, READS, 5);
    tc_tensor y = tc_index_add(x, 0, index, src);
    tci_plan *p = plan_for(y, blocks);
    REQUIRE(p && !complains(plan_verifier, p));
    /* the order is that of the index, whatever goes by it */
    tci_plan *two = plan_for(tc_cat(TC_TENSORS(y, tc_index_add(x, 0, index, tc_sin(src))), 0),
                             blocks);
    REQUIRE(two);
    CHECK_EQ_INT(two->n_steps, p->n_steps + 2);
    tci_kernel *k = kernel_with(p, true);
    REQUIRE(k && !complains(kernel_verifier, k));
    tci_kstage *stage = &k->stages[k->n_stages - 1];
    CHECK_MSG(k->flops <= 4 * READS * 5, "%lld flops", (long long)k->flops);
    CHECK_MSG(k->bytes <= 100 * (READS + 300) * 5, "%lld bytes", (long long)k->bytes);
    BREAK(kernel_verifier, k, stage->from, -1);
    BREAK(kernel_verifier, k, stage->to, k->n_kx);
    BREAK(kernel_verifier, k, stage->kind, TCI_STAGE_MAP);
    BREAK(kernel_verifier, k, stage->n_axes, 0);
    BREAK(kernel_verifier, k, stage->to, tci_kx_add(k, stage->to, tci_kx_const(k, 1)));
    BREAK(kernel_verifier, k, stage->from, tci_kx_axis(k, stage->axes[0]));
    k = kernel_with(p, false);
    REQUIRE(k && !complains(kernel_verifier, k));
    BREAK(kernel_verifier, k, k->stores[0].apart, false);
    BREAK(kernel_verifier, k, k->stores[0].mode, TCI_MODE_ADD);
    end();
}

TEST(kernels)
{
    begin();
    /* a turned half of x, 30 of 60 elements, next to a turned matrix whose sizes do not nest with
     * its own: at quotients and remainders */
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 10), b = tc_input(ctx, "b", TC_F32, 6, 5);
    tc_tensor half = tc_reshape(tc_transpose(tc_slice(x, 0, 0, 3, 1), 0, 1), 5, 6);
    tc_tensor y = tc_add(half, tc_transpose(b, 0, 1));
    tci_plan *p = plan_of(y);
    REQUIRE(p && p->n_kernels == 1);
    tci_kernel *k = p->kernels[0];
    tci_kstore *store = &k->stores[0];
    CHECK(k->n_stores == 1 && !complains(kernel_verifier, k));
    BREAK(kernel_verifier, k, store->operand, k->n_operands);
    BREAK(kernel_verifier, k, store->operand, 0); /* the input */
    BREAK(kernel_verifier, k, store->x, k->n_kx);
    BREAK(kernel_verifier, k, store->value, k->n_insts);
    BREAK(kernel_verifier, k, store->stage, k->n_stages);
    BREAK(kernel_verifier, k, store->x, tci_kx_const(k, 0)); /* all points at one place */
    BREAK(kernel_verifier, k, store->x, tci_kx_add(k, store->x, tci_kx_const(k, 1)));
    BREAK(kernel_verifier, k, store->x, tci_kx_add(k, store->x, tci_kx_const(k, -1)));
    BREAK(kernel_verifier, k, k->operands[store->operand].n, 29);
    BREAK(kernel_verifier, k, k->operands[0].n, 10);
    BREAK(kernel_verifier, k, k->kx[find_kx(k, TCI_KX_AXIS)].c, k->n_axes);
    BREAK(kernel_verifier, k, k->kx[find_kx(k, TCI_KX_MUL)].a, k->n_kx);
    tci_kx_div(k, tci_kx_axis(k, 0), 3);
    tci_kx_mod(k, tci_kx_axis(k, 0), 3);
    BREAK(kernel_verifier, k, k->kx[find_kx(k, TCI_KX_DIV)].c, 0);
    BREAK(kernel_verifier, k, k->kx[find_kx(k, TCI_KX_MOD)].c, -3);
    BREAK(kernel_verifier, k, k->insts[k->n_insts - 1].args[0], k->n_insts);
    end();
}

TEST(stores_of_several_axes)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4, 5);
    tci_plan *p = plan_of(tc_cumsum(x, 1)); /* nothing joins the axes */
    REQUIRE(p && p->n_kernels == 1);
    tci_kernel *k = p->kernels[0];
    tci_kstore *store = &k->stores[0];
    int row = tci_kx_axis(k, 0), column = tci_kx_axis(k, 1);
    CHECK(k->n_axes == 2 && !complains(kernel_verifier, k));
    BREAK(kernel_verifier, k, store->x, tci_kx_add(k, tci_kx_mul(k, row, 4), column));
    BREAK(kernel_verifier, k, store->x, tci_kx_mul(k, row, 5));
    store->x = tci_kx_add(k, row, tci_kx_mul(k, column, 4)); /* turned: as good */
    CHECK(!complains(kernel_verifier, k));
    BREAK(kernel_verifier, k, k->stages[store->stage].kind, TCI_STAGE_REDUCE);
    end();
}

/* One kernel of y, whose first reduction is red; as made it breaks nothing. */
static tci_kernel *kernel_with_sums(tc_tensor y, tci_kred **red)
{
    tci_plan *p = plan_of(y);
    REQUIRE(p && p->n_kernels == 1 && p->kernels[0]->n_reds > 0);
    CHECK(!complains(kernel_verifier, p->kernels[0]));
    *red = &p->kernels[0]->reds[0];
    return p->kernels[0];
}

/* The numeric class of a reduction, and its number. */
TEST(classes)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40, 50);
    tci_kred *red = NULL;
    tci_kernel *k = kernel_with_sums(tc_softmax(x, 1), &red); /* rows */
    CHECK(k->vector == TCI_VEC_INNER && red->order == TCI_ORDER_LANES && red->order_n == 64);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_CHAIN);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_MATRIX);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_MATRIX + 1);
    BREAK(kernel_verifier, k, red->order_n, 0);
    BREAK(kernel_verifier, k, red->order_n, 96);
    BREAK(kernel_verifier, k, red->order_n, 2 * TCI_VLANES_MAX);
    BREAK(kernel_verifier, k, red[1].order_n, 128); /* not that of the other one */
    BREAK(kernel_verifier, k, red[1].near, 4);      /* likewise */
    BREAK(kernel_verifier, k, k->vector, TCI_VEC_OUTER);
    k = kernel_with_sums(tc_sum(x, TC_AXES(0), false), &red); /* columns */
    CHECK(k->vector == TCI_VEC_OUTER && red->order == TCI_ORDER_CHAIN && red->order_n == 0);
    BREAK(kernel_verifier, k, red->near, 4); /* lanes of threads alone have neighbours */
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_LANES);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_MATRIX);
    BREAK(kernel_verifier, k, red->points, 2);
    BREAK(kernel_verifier, k, red->order_n, 64);
    BREAK(kernel_verifier, k, k->vector, TCI_VEC_INNER);
    k = kernel_with_sums(tc_cumsum(x, 1), &red);
    CHECK(k->vector == TCI_VEC_INNER && red->order == TCI_ORDER_BLOCK_SCAN && red->order_n == 64);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_MATRIX);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_LANES);
    BREAK(kernel_verifier, k, red->order_n, 96);
    BREAK(kernel_verifier, k, red->op, TCI_RED_ARGMAX);
    BREAK(kernel_verifier, k, k->vector, TCI_VEC_OUTER);
    k = kernel_with_sums(tc_cumsum(x, 0), &red);
    CHECK(k->vector == TCI_VEC_OUTER && red->order == TCI_ORDER_CHAIN && red->order_n == 0);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_BLOCK_SCAN);
    k = kernel_with_sums(tc_matmul(x, tc_input(ctx, "b", TC_F32, 50, 32)), &red);
    CHECK(red->op == TCI_RED_DOT && red->order == TCI_ORDER_CHAIN);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_LANES);
    BREAK(kernel_verifier, k, red->order, TCI_ORDER_SPLIT);
    BREAK(kernel_verifier, k, red->order_n, 512);
    tc_tensor long_x = tc_input(ctx, "x", TC_F32, 40, 700);
    k = kernel_with_sums(tc_matmul(long_x, tc_input(ctx, "b", TC_F32, 700, 32)), &red);
    CHECK(red->order == TCI_ORDER_SPLIT && red->order_n == 512);
    BREAK(kernel_verifier, k, red->order_n, 0);
    BREAK(kernel_verifier, k, red->op, TCI_RED_SUM);
    BREAK(kernel_verifier, k, red->dtype, TC_F64);
    end();
}

TEST(groups)
{
    begin();
    tci_plan *p = plan_of(two_kernels());
    REQUIRE(p && p->fusion->n_groups >= 2);
    tci_fusion *f = p->fusion;
    CHECK(!complains(plan_verifier, p));
    int last = f->order[f->n_groups - 1], first = f->order[0];
    tci_group *g = &f->groups[last];
    tci_root *r = &f->roots[g->roots[0]];
    REQUIRE(g->n_deps > 0 && r->n_reads > 0 && r->outer_of[0] >= 0);
    BREAK(plan_verifier, p, f->order[0], last);
    BREAK(plan_verifier, p, f->order[f->n_groups - 1], first);
    BREAK(plan_verifier, p, g->deps[0], last);
    BREAK(plan_verifier, p, g->n_deps, 0);
    BREAK(plan_verifier, p, g->n_roots, 0);
    BREAK(plan_verifier, p, g->roots[0], f->groups[first].roots[0]);
    BREAK(plan_verifier, p, g->has_scan, !g->has_scan);
    BREAK(plan_verifier, p, g->has_contract, !g->has_contract);
    BREAK(plan_verifier, p, r->group, first);
    BREAK(plan_verifier, p, r->reads[0].root, g->roots[0]);
    BREAK(plan_verifier, p, r->reads[0].node, r->node);
    BREAK(plan_verifier, p, r->out_axis[0], r->n_domain);
    BREAK(plan_verifier, p, r->outer_of[0], g->n_outer);
    BREAK(plan_verifier, p, r->outer_of[0], -1);
    BREAK(plan_verifier, p, g->outer[r->outer_of[0]], 77);
    BREAK(plan_verifier, p, r->domain[r->out_axis[0]], 77);
    BREAK(plan_verifier, p, f->roots[r->reads[0].root].buffer, -1);
    BREAK(plan_verifier, p, g->weight, TCI_COST_KERNEL_OPS + 1);
    BREAK(plan_verifier, p, g->n_operands, TCI_COST_KERNEL_OPERANDS + 1);
    CHECK(!complains(plan_verifier, p));
    end();
}

/* What keeps the rows of one group together, and what is told of two that were kept apart. */
TEST(reads_inside_a_group)
{
    begin();
    tci_plan *p = plan_of(tc_softmax(tc_input(ctx, "x", TC_F32, 6, 10), 1));
    REQUIRE(p && p->fusion->n_groups == 1 && p->fusion->n_roots == 3);
    tci_fusion *f = p->fusion;
    tci_root *y = &f->roots[2];
    REQUIRE(y->kind == TCI_ROOT_VALUE && y->n_reads == 2 && y->outer_of[0] == 0);
    CHECK(!complains(plan_verifier, p));
    BREAK(plan_verifier, p, y->reads[0].pure, false);
    BREAK(plan_verifier, p, y->reads[0].axes[0], 1);
    BREAK(plan_verifier, p, y->reads[0].axes[0], -2);
    BREAK(plan_verifier, p, y->reads[0].axes[0], y->n_domain);
    BREAK(plan_verifier, p, y->buffer, -1);
    BREAK(plan_verifier, p, y->leaves[0], y->node);
    BREAK(plan_verifier, p, tci_pnode_of(f, y->node)->forced, false);
    BREAK(plan_verifier, p, tci_pnode_of(f, y->node)->why, TCI_WHY_COUNT + 1);
    BREAK(plan_verifier, p, f->groups[0].has_reduce, false);
    CHECK(!complains(plan_verifier, p));
    end();
}

/* The first step of that kind with so many guards at least, in any section. */
static tci_interp_step *find_guarded(const tci_interp *p, tci_interp_kind kind, int n_guards)
{
    for (int t = 0; t < p->n_stages; t++) {
        for (int d = -1; d <= p->stages[t].n_axes; d++) {
            const tci_interp_section *at = d < 0 ? &p->before[t] : &p->stages[t].sections[d];
            for (int i = 0; i < at->n; i++) {
                if (at->steps[i].kind == kind && at->steps[i].n_guards >= n_guards) {
                    return &at->steps[i];
                }
            }
        }
    }
    return NULL;
}

static tci_interp_step *find_step(const tci_interp *p, tci_interp_kind kind)
{
    return find_guarded(p, kind, 0);
}

/* Attention: softmax over 20 keys of 10 numbers, for 12 queries. */
static tci_plan *attention_plan(void)
{
    tc_tensor q = tc_input(ctx, "q", TC_F32, 12, 10), k = tc_input(ctx, "k", TC_F32, 10, 20),
              v = tc_input(ctx, "v", TC_F32, 20, 10);
    return plan_on(tc_matmul(tc_softmax(tc_matmul(q, k), 1), v), 0);
}

TEST(groups_that_keep_rows)
{
    begin();
    tci_plan *p = attention_plan();
    REQUIRE(p && p->fusion->n_groups == 1 && p->fusion->groups[0].keeps);
    tci_fusion *f = p->fusion;
    tci_group *g = &f->groups[0];
    tci_root *scores = &f->roots[0], *sum = &f->roots[2];
    REQUIRE(scores->kind == TCI_ROOT_CONTRACT && sum->kind == TCI_ROOT_REDUCE);
    REQUIRE(scores->outer_of[0] == 0 && scores->inner_of[1] >= 0 && sum->inner_of[1] >= 0);
    CHECK(!complains(plan_verifier, p));
    BREAK(plan_verifier, p, g->keeps, false);
    BREAK(plan_verifier, p, g->has_contract, false);
    BREAK(plan_verifier, p, scores->inner_of, NULL);
    BREAK(plan_verifier, p, scores->inner_of[1], g->n_inner);
    BREAK(plan_verifier, p, scores->inner_of[1], -1);
    BREAK(plan_verifier, p, scores->inner_of[0], scores->inner_of[1]); /* outer and inner */
    BREAK(plan_verifier, p, sum->inner_of[1], scores->inner_of[2]);    /* another axis */
    BREAK(plan_verifier, p, g->inner[scores->inner_of[1]], 77);
    CHECK(!complains(plan_verifier, p));
    end();
}

TEST(stages_that_keep_rows)
{
    begin();
    tci_plan *p = attention_plan();
    REQUIRE(p && p->n_kernels == 1);
    tci_kernel *k = p->kernels[0];
    REQUIRE(k->n_stages == 6 && k->stages[0].n_kept == 1 && k->stages[0].n_axes == 2);
    REQUIRE(k->stages[3].n_kept == 1 && k->stages[4].n_kept == 1);
    CHECK(!complains(kernel_verifier, k));
    BREAK(kernel_verifier, k, k->stages[0].n_kept, 0); /* a DOT in lanes */
    BREAK(kernel_verifier, k, k->stages[0].n_kept, 3);
    BREAK(kernel_verifier, k, k->stages[0].n_kept, -1);
    BREAK(kernel_verifier, k, k->stages[5].n_kept, 1); /* of a MAP */
    BREAK(kernel_verifier, k, k->stages[1].n_kept, 1);
    BREAK(kernel_verifier, k, k->vector, TCI_VEC_OUTER);
    BREAK(kernel_verifier, k, k->reds[0].order, TCI_ORDER_LANES);
    BREAK(kernel_verifier, k, k->reds[1].order, TCI_ORDER_CHAIN);
    BREAK(kernel_verifier, k, k->stages[1].axes[0], k->stages[4].axes[1]); /* reads keys there */
    BREAK(kernel_verifier, k, k->reds[0].op, TCI_RED_ARGMAX);
    CHECK(!complains(kernel_verifier, k));
    tci_interp *i = tci_interp_make(k);
    REQUIRE(i);
    tci_interp_step *row = find_step(i, TCI_STEP_ROW), *fold = find_step(i, TCI_STEP_FOLD);
    REQUIRE(row && fold && row->x && fold->x && i->reds[row->ref].row > 0);
    CHECK(!complains(interp_verifier, i));
    BREAK(interp_verifier, i, row->x, NULL);
    BREAK(interp_verifier, i, fold->x, NULL);
    BREAK(interp_verifier, i, row->ref, i->n_reds);
    BREAK(interp_verifier, i, i->reds[row->ref].row, 0);
    BREAK(interp_verifier, i, i->reds[row->ref].row, 19);
    BREAK(interp_verifier, i, i->values[i->reds[row->ref].acc[0]].lanes, 1);
    CHECK(!complains(interp_verifier, i));
    tci_interp_free(i);
    end();
}

TEST(refusals)
{
    begin();
    tci_plan *p = plan_of(two_kernels());
    REQUIRE(p && p->fusion->n_refusals > 0);
    tci_refusal *r = &p->fusion->refusals[0];
    CHECK(!complains(plan_verifier, p));
    BREAK(plan_verifier, p, r->why, TCI_WHY_COUNT);
    BREAK(plan_verifier, p, r->source, r->reader);
    BREAK(plan_verifier, p, r->reader, r->reader->in[0]->in[0]); /* a leaf */
    CHECK(!complains(plan_verifier, p));
    end();
}

/* Two groups that read of one: each dependency is there once. */
TEST(dependencies)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16, 16), y = tc_matmul(x, x);
    tci_plan *p = plan_of(tc_matmul(tc_matmul(y, x), tc_matmul(x, y)));
    REQUIRE(p && p->fusion->n_groups == 4);
    tci_group *g = &p->fusion->groups[p->fusion->order[3]];
    REQUIRE(g->n_deps == 2);
    CHECK(!complains(plan_verifier, p));
    BREAK(plan_verifier, p, g->deps[1], g->deps[0]);
    BREAK(plan_verifier, p, g->deps[1], p->fusion->order[0]); /* reads nothing of it */
    BREAK(plan_verifier, p, g->n_deps, 1);
    int own = p->fusion->order[3];
    BREAK(plan_verifier, p, g->deps[1], own);
    CHECK(!complains(plan_verifier, p));
    end();
}

TEST(plans)
{
    begin();
    tci_plan *p = plan_of(two_kernels());
    REQUIRE(p && p->n_steps >= 2);
    tci_step *step = &p->steps[p->n_steps - 1];
    int n = p->kernels[step->kernel]->n_operands, temp = -1;
    for (int b = 0; b < p->n_buffers; b++) {
        temp = p->buffers[b].kind == TCI_BUF_TEMP ? b : temp;
    }
    REQUIRE(temp >= 0);
    CHECK(!complains(plan_verifier, p));
    BREAK(plan_verifier, p, step->kernel, p->n_kernels);
    BREAK(plan_verifier, p, step->operands[n - 1], p->n_buffers);
    BREAK(plan_verifier, p, p->n_steps, p->n_steps - 1); /* an output that nothing writes */
    BREAK(plan_verifier, p, p->buffers[temp].n, 1);
    BREAK(plan_verifier, p, p->buffers[temp].dtype, TC_F64);
    BREAK(plan_verifier, p, p->buffers[temp].offset, p->arena_bytes);
    BREAK(plan_verifier, p, p->buffers[temp].offset, 32);
    BREAK(plan_verifier, p, p->arena_bytes, 63);
    end();
}

TEST(plans_with_an_init_section)
{
    static float data[64];
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64), w = tc_borrow(ctx, data, TC_F32, 64);
    tci_plan *p = plan_of(tc_add(tc_mul(x, tc_exp(w)), tc_mul(x, tc_cumsum(w, 0))));
    REQUIRE(p && p->n_init == 2 && p->n_steps == 3);
    int n = p->kernels[p->steps[0].kernel]->n_operands, kept = -1;
    int32_t *writes = &p->steps[0].operands[n - 1], *reads = &p->steps[0].operands[0];
    for (int b = 0; b < p->n_buffers; b++) {
        kept = p->buffers[b].kind == TCI_BUF_KEPT ? b : kept;
    }
    int other = *writes == kept ? p->steps[1].operands[1] : *writes;
    CHECK(kept >= 0 && p->kept_bytes == 512 && !complains(plan_verifier, p));
    BREAK(plan_verifier, p, p->n_init, 3); /* the last step reads an input and writes an output */
    BREAK(plan_verifier, p, p->n_init, 1); /* each run would write what is kept */
    BREAK(plan_verifier, p, *reads, 0);    /* the program's input */
    BREAK(plan_verifier, p, p->buffers[kept].once, false);
    BREAK(plan_verifier, p, p->buffers[kept].offset, p->buffers[other].offset);
    BREAK(plan_verifier, p, p->buffers[kept].offset, 512);
    BREAK(plan_verifier, p, p->kept_bytes, 256);
    CHECK(!complains(plan_verifier, p));
    end();
}

/* Two kernels side by side, in a plan, as loops and as steps of the interpreter. */
TEST(joints)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 400, 200), y = tc_input(ctx, "y", TC_F32, 300, 200);
    tc_tensor rows = tc_sum(x, TC_AXES(1), false), others = tc_sum(y, TC_AXES(1), false);
    tc_tensor both = tc_add(tc_sum(tc_sqrt(rows), TC_ALL, false),
                            tc_sum(tc_sqrt(others), TC_ALL, false));
    tci_machine machine = tci_machine_complete(
        (tci_machine){.vector_bytes = 32, .groups_launches = true});
    tci_plan *p = plan_for(both, machine);
    REQUIRE(p && p->n_steps >= 2);
    tci_kernel *k = p->kernels[p->steps[0].kernel];
    CHECK_EQ_INT(k->n_members, 2);
    CHECK(!complains(plan_verifier, p));
    BREAK(kernel_verifier, k, k->n_members, 1);
    BREAK(kernel_verifier, k, k->n_operands, k->n_operands - 1);
    BREAK(kernel_verifier, k, k->operands[0].is_output, true);
    BREAK(kernel_verifier, k, k->operands[0].n, 60000);
    BREAK(kernel_verifier, k, k->n_literals, 1);
    BREAK(kernel_verifier, k, k->members[1]->n_members, 1);
    BREAK(plan_verifier, p, p->steps[0].operands[0], p->steps[0].operands[2]);
    tci_launch launch;
    tci_loop *l = tci_loop_schedule(&scratch, k, machine, &launch);
    CHECK(!complains(loop_verifier, l));
    BREAK(loop_verifier, l, l->members[1].first_task, 0);
    BREAK(loop_verifier, l, l->members[1].operand, 0);
    BREAK(loop_verifier, l, l->members[1].first_same, 0);
    BREAK(loop_verifier, l, l->n_tasks, 1);
    tci_interp *i = tci_interp_make(k);
    REQUIRE(i != NULL);
    CHECK(!complains(interp_verifier, i));
    BREAK(interp_verifier, i, i->members[1].first_task, 0);
    BREAK(interp_verifier, i, i->workspace_bytes, 0);
    tci_interp_free(i);
    end();
}

static tc_status step_of_loop(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                              tc_tensor *y)
{
    (void)user;
    next[0] = tc_add(tc_mul(c[0], 0.5), x[0]);
    y[0] = tc_sum(tc_exp(c[0]), TC_ALL, false);
    return TC_OK;
}

/* An in-kernel loop, in a plan, as loops and as steps of the interpreter. */
TEST(fused_loops)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 20), y;
    tci_machine machine = tci_machine_complete((tci_machine){.vector_bytes = 32, .loops = true});
    REQUIRE(!tc_scan(TC_TENSORS(tc_full(ctx, 0, TC_F32)), TC_TENSORS(x), 0, false, step_of_loop,
                     NULL, NULL, &y, 1));
    tci_plan *p = plan_for(y, machine);
    REQUIRE(p && p->n_spans == 0);
    tci_kernel *k = p->kernels[p->steps[p->n_steps - 1].kernel];
    REQUIRE(k->loop && k->loop->n_carries == 1 && k->loop->n_enter == 1);
    tci_kloop *loop = (tci_kloop *)(uintptr_t)k->loop;
    CHECK(!complains(plan_verifier, p));
    BREAK(kernel_verifier, k, loop->n_places, loop->n_places - 1);
    BREAK(kernel_verifier, k, loop->n_enter, k->n_members + 1);
    BREAK(kernel_verifier, k, loop->stops, 1);
    BREAK(kernel_verifier, k, loop->places[0].base, k->n_operands);
    BREAK(kernel_verifier, k, loop->carries[0].next, loop->carries[0].cell);
    BREAK(kernel_verifier, k, loop->carries[0].bytes, 8);
    BREAK(kernel_verifier, k, loop->cells[loop->carries[0].cell].n, 2);
    BREAK(kernel_verifier, k, k->n_literals, k->n_literals + 1);
    BREAK(kernel_verifier, k, k->operands[loop->carries[0].from.base].is_output, false);
    tci_launch launch;
    tci_loop *l = tci_loop_schedule(&scratch, k, machine, &launch);
    CHECK(!complains(loop_verifier, l));
    BREAK(loop_verifier, l, l->members[1].first_same, 0);
    BREAK(loop_verifier, l, l->threads, 0);
    tci_interp *i = tci_interp_make(k);
    REQUIRE(i != NULL);
    CHECK(!complains(interp_verifier, i));
    BREAK(interp_verifier, i, i->members[1].first_task, 1);
    tci_interp_free(i);
    end();
}

static tci_lstmt *find_mem(tci_loop *l, tci_mem mem)
{
    for (int b = 0; b < l->n_blocks; b++) {
        for (int i = 0; i < l->blocks[b].n; i++) {
            tci_lstmt *st = &l->blocks[b].stmts[i];
            if (st->op == TCI_L_MEM && st->mem == mem) {
                return st;
            }
        }
    }
    return NULL;
}

TEST(loops)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 50, 72);
    tci_plan *p = plan_of(tc_exp(tc_transpose(tc_slice(x, 0, 0, 40, 1), 0, 1)));
    REQUIRE(p && p->n_kernels == 1);
    tci_launch launch;
    tci_machine machine = {.vector_bytes = 32};
    tci_loop *l = tci_loop_schedule(&scratch, p->kernels[0], machine, &launch);
    tci_lstmt *store = find_mem(l, TCI_MEM_STORE);
    REQUIRE(store && store->base >= 0);
    CHECK(!complains(loop_verifier, l));
    int below = tci_lx_const(l, -1), all = tci_lx_const(l, 40 * 72);
    int before = tci_lx_make(l, TCI_LX_ADD, store->x, below, 0);
    int after = tci_lx_make(l, TCI_LX_ADD, store->x, all, 0);
    int divides = tci_lx_make(l, TCI_LX_DIV, before, -1, 2);
    int remains = tci_lx_make(l, TCI_LX_MOD, before, -1, 64);
    BREAK(loop_verifier, l, store->x, before);
    BREAK(loop_verifier, l, store->x, after);
    BREAK(loop_verifier, l, store->x, divides);
    BREAK(loop_verifier, l, store->x, remains);
    BREAK(loop_verifier, l, store->base, l->n_operands);
    BREAK(loop_verifier, l, store->base, 0); /* the input */
    BREAK(loop_verifier, l, store->args[0], l->n_values);
    BREAK(loop_verifier, l, l->operands[0].n, 72);
    BREAK(loop_verifier, l, l->operands[store->base].n, 40 * 72 - 1);
    CHECK(!complains(loop_verifier, l));
    end();
}

/* What warps' matrix units take: whole words at their multiples, parts of the threads' own. */
TEST(loops_of_matrix_units)
{
    begin();
    tc_tensor a = tc_input(ctx, "a", TC_F16, 128, 128), b = tc_input(ctx, "b", TC_F16, 128, 128);
    tci_machine machine = {.vector_bytes = 16, .block_threads = 512, .warp_unit = TC_WARP_HALVES};
    tci_plan *p = plan_for(tc_matmul(a, b), machine);
    REQUIRE(p && p->n_kernels == 1);
    tci_launch launch;
    tci_loop *l = tci_loop_schedule(&scratch, p->kernels[0], machine, &launch);
    tci_lstmt *words = find_mem(l, TCI_MEM_WORDS), *rows = find_mem(l, TCI_MEM_UNIT_ROWS);
    tci_lstmt *dot = find_mem(l, TCI_MEM_UNIT_DOT), *sum = find_mem(l, TCI_MEM_UNIT_SUM);
    tci_lstmt *pair = find_mem(l, TCI_MEM_STORE_PAIRS);
    REQUIRE(words && rows && dot && sum && pair);
    CHECK(!complains(loop_verifier, l));
    int moved = tci_lx_make(l, TCI_LX_ADD, words->x, tci_lx_const(l, 4), 0);
    BREAK(loop_verifier, l, words->x, moved);
    BREAK(loop_verifier, l, rows->imm, 36);
    BREAK(loop_verifier, l, pair->x, tci_lx_make(l, TCI_LX_ADD, pair->x, tci_lx_const(l, 1), 0));
    BREAK(loop_verifier, l, dot->args[1], dot->args[0]);
    BREAK(loop_verifier, l, dot->args[0], dot->args[1]);
    BREAK(loop_verifier, l, sum->imm, 8);
    BREAK(loop_verifier, l, l->values[dot->args[2]].lanes, 4);
    BREAK(loop_verifier, l, l->threads, 16);
    CHECK(!complains(loop_verifier, l));
    end();
}

/* A write into x: x is copied where the result has other memory. */
TEST(copies_of_what_is_written_into)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 50, 72), i = tc_input(ctx, "i", TC_I64, 3);
    tci_plan *p = plan_of(tc_index_add(x, 0, i, tc_input(ctx, "y", TC_F32, 3, 72)));
    REQUIRE(p && p->n_kernels == 1);
    tci_launch launch;
    tci_machine machine = {.vector_bytes = 32};
    tci_loop *l = tci_loop_schedule(&scratch, p->kernels[0], machine, &launch);
    tci_lstmt *elsewhere = NULL;
    for (int b = 0; b < l->n_blocks; b++) {
        for (int k = 0; k < l->blocks[b].n; k++) {
            tci_lstmt *st = &l->blocks[b].stmts[k];
            elsewhere = st->op == TCI_L_ELSEWHERE ? st : elsewhere;
        }
    }
    REQUIRE(elsewhere != NULL);
    CHECK(!complains(loop_verifier, l));
    BREAK(loop_verifier, l, elsewhere->base, l->n_operands);
    BREAK(loop_verifier, l, elsewhere->imm, -1);
    BREAK(loop_verifier, l, elsewhere->imm, elsewhere->base);
    end();
}

TEST(steps_of_the_interpreter)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100);
    tci_plan *plan = plan_of(tc_softmax(tc_sin(x), 1));
    REQUIRE(plan && plan->n_kernels == 1);
    tci_interp *p = tci_interp_make(plan->kernels[0]);
    REQUIRE(p);
    tci_interp_step *op = find_step(p, TCI_STEP_OP), *load = find_step(p, TCI_STEP_LOAD);
    tci_interp_step *store = find_step(p, TCI_STEP_STORE), *fold = find_step(p, TCI_STEP_FOLD);
    REQUIRE(op && load && store && fold && load->x && store->x);
    int64_t *base = &((tci_interp_addr *)(uintptr_t)store->x)->base;
    CHECK(!complains(interp_verifier, p));
    BREAK(interp_verifier, p, op->in[0], p->n_values);
    BREAK(interp_verifier, p, op->in[0], op->out);      /* of itself */
    BREAK(interp_verifier, p, op->in[0], store->in[0]); /* made later */
    BREAK(interp_verifier, p, op->out, load->out);      /* made twice */
    BREAK(interp_verifier, p, op->bytes, 3);
    BREAK(interp_verifier, p, load->ref, p->n_operands);
    BREAK(interp_verifier, p, store->ref, -1);
    BREAK(interp_verifier, p, fold->ref, p->n_reds);
    BREAK(interp_verifier, p, *base, 1);
    BREAK(interp_verifier, p, *base, -1);
    BREAK(interp_verifier, p, p->operand_n[load->ref], 6399);
    BREAK(interp_verifier, p, p->values[p->reds[0].acc[0]].own, false);
    BREAK(interp_verifier, p, p->values[op->out].offset, p->workspace_bytes);
    BREAK(interp_verifier, p, p->values[op->out].offset, p->values[p->reds[0].acc[0]].offset);
    BREAK(interp_verifier, p, p->values[op->out].offset, p->values[op->out].offset + 8);
    BREAK(interp_verifier, p, p->stages[0].axes[0], 0); /* an outer axis */
    CHECK(!complains(interp_verifier, p));
    tci_interp_free(p);
    end();
}

/* What the steps of a softmax have none of: guards, tuples that a section joins, stretches. */
TEST(guards_and_tuples_of_the_interpreter)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 20, 300);
    tci_plan *plan = plan_of(tc_argmax(tc_pad(x, 1, 3, 4, 0), 1, false));
    REQUIRE(plan && plan->n_kernels == 1);
    tci_interp *p = tci_interp_make(plan->kernels[0]);
    REQUIRE(p && p->n_reds == 1);
    tci_interp_red *r = &p->reds[0];
    tci_interp_stage *stage = &p->stages[0];
    tci_interp_step *load = find_step(p, TCI_STEP_LOAD);
    REQUIRE(load && load->n_guards > 0 && load->x && !r->single && r->n_parts == 2);
    tci_interp_guard *guard = (tci_interp_guard *)(uintptr_t)load->guards;
    tci_interp_term *term = load->x->terms;
    CHECK(!complains(interp_verifier, p));
    BREAK(interp_verifier, p, term->axis, p->n_axes);
    BREAK(interp_verifier, p, guard->block, p->n_values);
    BREAK(interp_verifier, p, load->in[0], p->n_values);
    BREAK(interp_verifier, p, stage->sections[1].vec, p->n_axes);
    BREAK(interp_verifier, p, stage->from, load->x); /* and no end */
    BREAK(interp_verifier, p, stage->reds[0], p->n_reds);
    BREAK(interp_verifier, p, r->n_parts, 0);
    BREAK(interp_verifier, p, r->part, r->n_parts);
    BREAK(interp_verifier, p, r->left[0], p->n_values);
    BREAK(interp_verifier, p, r->right[0], r->left[0]); /* stands for two values */
    BREAK(interp_verifier, p, r->bytes[0], 2);
    BREAK(interp_verifier, p, r->joined[0], load->out); /* made elsewhere */
    BREAK(interp_verifier, p, p->values[r->joined[0]].own, false);
    BREAK(interp_verifier, p, p->values[r->left[1]].varies, false);
    CHECK(!complains(interp_verifier, p));
    tci_interp_free(p);
    end();
}

/* A guard of a loaded index holds it lane by lane: then its address is never evaluated, and may
 * name what is not there any more. */
TEST(guards_from_blocks_of_the_interpreter)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 30, 8), i = tc_input(ctx, "i", TC_I32, 20, 8);
    tci_plan *plan = plan_of(tc_gather(tc_pad(x, 0, 3, 4, 0), 0, i));
    REQUIRE(plan && plan->n_kernels == 1);
    tci_interp *p = tci_interp_make(plan->kernels[0]);
    REQUIRE(p);
    tci_interp_step *load = find_guarded(p, TCI_STEP_LOAD, 1);
    REQUIRE(load && load->n_guards == 1 && load->guards[0].block >= 0);
    tci_interp_guard *guard = (tci_interp_guard *)(uintptr_t)load->guards;
    tci_interp_addr unread = *guard->x;
    REQUIRE(unread.n_atoms == 1 && unread.atoms[0].op == TCI_KX_VALUE);
    tci_interp_atom atom = unread.atoms[0];
    const tci_interp_addr *read = guard->x;
    unread.atoms = &atom;
    atom.value = p->n_values;
    CHECK(!complains(interp_verifier, p));
    BREAK(interp_verifier, p, guard->block, load->out); /* made later */
    BREAK(interp_verifier, p, guard->block, p->n_values);
    guard->x = &unread;
    CHECK(!complains(interp_verifier, p));
    BREAK(interp_verifier, p, guard->block, -1); /* now it is read */
    guard->x = read;
    CHECK(!complains(interp_verifier, p));
    tci_interp_free(p);
    end();
}

TEST(code)
{
    begin();
    tc_program *f = NULL;
    tc_tensor y = tc_add(tc_mul(two_kernels(), 1.5), 2.5);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    tci_code *c = f->code;
    CHECK(c->n_steps >= 2 && c->n_inputs == 1 && !complains(code_verifier, c));
    tci_code_step *step = &c->steps[c->n_steps - 1];
    int temp = -1;
    for (int b = 0; b < c->n_buffers; b++) {
        temp = c->buffers[b].kind == TCI_BUF_TEMP ? b : temp;
    }
    REQUIRE(temp >= 0 && c->kernels[step->kernel].n_literals > 0);
    BREAK(code_verifier, c, step->kernel, c->n_kernels);
    BREAK(code_verifier, c, step->operands[0], c->n_buffers);
    BREAK(code_verifier, c, step->literals[0], c->n_literals);
    BREAK(code_verifier, c, c->inputs[0].n, 61);
    BREAK(code_verifier, c, c->inputs[0].dtype, TC_DTYPE_COUNT);
    BREAK(code_verifier, c, c->outputs[0].shape[0], 7);
    BREAK(code_verifier, c, c->kernels[0].interp, NULL); /* nothing runs it */
    BREAK(code_verifier, c, c->kernels[0].n_tasks, -1);
    BREAK(code_verifier, c, c->buffers[temp].offset, 32);
    BREAK(code_verifier, c, c->buffers[temp].offset, (c->arena_bytes + 63) / 64 * 64);
    BREAK(code_verifier, c, c->buffers[temp].last, 0); /* read later */
    BREAK(code_verifier, c, c->buffers[temp].kind, 4);
    BREAK(code_verifier, c, c->buffers[temp].kind, TCI_BUF_KEPT); /* nothing keeps it */
    BREAK(code_verifier, c, c->arena_bytes, 63);
    tci_alias beyond = {0, 1}, *aliases = c->aliases; /* there is one input */
    c->aliases = &beyond;
    BREAK(code_verifier, c, c->n_aliases, 1);
    c->aliases = aliases;
    CHECK(!complains(code_verifier, c));
    tc_program_free(f);
    end();
}

/* ---- the list of steps ---- */

static tci_list_step *find_row(tci_code *c, tci_list_kind kind, int which)
{
    for (int i = c->n_init_section; i < c->n_list; i++) {
        if (c->list[i].kind == kind && which-- == 0) {
            return &c->list[i];
        }
    }
    return NULL;
}

/* On a device with memory of its own: everything that a list can have. */
TEST(lists)
{
    static float data[64];
    begin();
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "null";
    o.no_disk_cache = true;
    (void)tc_register_backend(&null_backend);
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64), w = tc_borrow(ctx, data, TC_F32, 64);
    tc_tensor p = tc_param(ctx, data, TC_F32, 64), y = tc_mul(x, tc_exp(w));
    tc_tensor z = tc_cumsum(tc_cumsum(y, 0), 0);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(z, tc_assign(p, tc_add(p, y))), &o, &f) ==
            TC_OK);
    tci_code *c = f->code;
    tci_str text = {.s = &scratch};
    tci_code_print(&text, c);
    CHECK_HAS(tci_str_text(&text), "once:\n  work: upload inputs 1 to 2\n"
                                   "  work: launch steps 0\n");
    CHECK_HAS(tci_str_text(&text), "run:\n  up: upload inputs 0 to 2\n  up: signal event 0\n"
                                   "  work: wait event 0\n  work: launch steps 1 to ");
    CHECK_HAS(tci_str_text(&text), "  work: signal event 1\n  down: wait event 1\n"
                                   "  down: download outputs 0\n  work: check\n"
                                   "  work: set effects");
    tci_list_step *up = find_row(c, TCI_LIST_UPLOAD, 0), *launch = find_row(c, TCI_LIST_LAUNCH, 0);
    tci_list_step *down = find_row(c, TCI_LIST_DOWNLOAD, 0), *set = find_row(c, TCI_LIST_SET, 0);
    tci_list_step *waits[2] = {find_row(c, TCI_LIST_WAIT, 0), find_row(c, TCI_LIST_WAIT, 1)};
    tci_list_step *signals[2] = {find_row(c, TCI_LIST_SIGNAL, 0), find_row(c, TCI_LIST_SIGNAL, 1)};
    tci_list_step *check = find_row(c, TCI_LIST_CHECK, 0);
    REQUIRE(up && launch && down && set && waits[1] && signals[1] && check && c->n_init == 1);
    CHECK(!complains(code_verifier, c));
    BREAK(code_verifier, c, up->begin, 1); /* an input that is not there */
    BREAK(code_verifier, c, up->end, c->n_inputs + 1);
    BREAK(code_verifier, c, up->queue, TCI_QUEUES);
    BREAK(code_verifier, c, up->kind, TCI_LIST_COUNT);
    BREAK(code_verifier, c, up->queue, TCI_QUEUE_DOWN); /* the signal is not behind it */
    BREAK(code_verifier, c, waits[0]->queue, TCI_QUEUE_DOWN);
    BREAK(code_verifier, c, waits[0]->begin, 1); /* not signalled yet */
    BREAK(code_verifier, c, waits[0]->kind, TCI_LIST_SIGNAL);
    BREAK(code_verifier, c, signals[0]->queue, TCI_QUEUE_WORK);
    BREAK(code_verifier, c, waits[1]->queue, TCI_QUEUE_UP);
    BREAK(code_verifier, c, signals[1]->begin, 2);
    BREAK(code_verifier, c, launch->begin, 2);
    BREAK(code_verifier, c, launch->end, launch->end - 1);
    BREAK(code_verifier, c, c->list[1].end, 2); /* the init section computes what reads an input */
    BREAK(code_verifier, c, c->n_init_section, 0);
    BREAK(code_verifier, c, c->n_init, 0);
    BREAK(code_verifier, c, down->queue, TCI_QUEUE_UP);
    BREAK(code_verifier, c, down->end, 0);
    BREAK(code_verifier, c, set->end, 0);
    BREAK(code_verifier, c, check->kind, TCI_LIST_SIGNAL); /* parameters set unseen */
    BREAK(code_verifier, c, c->kernels[c->steps[0].kernel].writes[0], 1);
    BREAK(code_verifier, c, c->kept_bytes, 64);
    CHECK(!complains(code_verifier, c));
    tc_program_free(f);
    end();
}

TEST_MAIN
