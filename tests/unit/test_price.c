/* tests/unit/test_price.c - groups are split where the cost model prices them far above their
 * parts, and stay whole where they gain: by plans of a processor, without timing. */
#include "inside.h"

#include <string.h>

#include "tc_test.h"

static tc_ctx *ctx;
static tci_scratch scratch;
static const tci_machine processor = {.vector_bytes = 64, .thread_scratch = true};

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

/* The plan of y; NULL: it escaped. */
static tci_plan *plan_for(tc_tensor y, tci_machine machine)
{
    REQUIRE(tc_status_of(y) == TC_OK);
    tci_node *root = tci_handle_node(y);
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        return NULL;
    }
    tci_request *r = tci_request_make(&scratch, NULL, 0, &root, 1, &tci_ctx_of(ctx)->options, NULL,
                                      NULL);
    tci_request_copy copy = tci_request_copy_graph(&scratch, r, NULL);
    tci_node **now = tci_rewrite(&scratch, copy.graph, copy.roots, 1);
    tci_plan *p = tci_plan_make(&scratch, copy.graph, copy.inputs, r->n_inputs, copy.literals,
                                r->n_literals, now, 1, machine);
    tci_plan_verify(&scratch, p);
    return p;
}

/* The most contractions that one kernel of the plan has. */
static int contractions(const tci_plan *p)
{
    int most = 0;
    for (int i = 0; i < p->n_kernels; i++) {
        int n = 0;
        for (int r = 0; r < p->kernels[i]->n_reds; r++) {
            n += p->kernels[i]->reds[r].op == TCI_RED_DOT;
        }
        most = TCI_MAX(most, n);
    }
    return most;
}

/* The largest price of a kernel over its memory traffic. */
static double highest(const tci_plan *p, tci_machine machine)
{
    double most = 0;
    for (int i = 0; i < p->n_kernels; i++) {
        tci_price price = tci_loop_price(&scratch, p->kernels[i], machine);
        most = TCI_MAX(most, price.ns / price.move_ns);
    }
    return most;
}

static bool says(const tci_plan *p, const char *text)
{
    return strstr(tci_str_text(&((tci_plan *)p)->why), text) != NULL;
}

#define INPUT(...) tc_input(ctx, "x", TC_F32, __VA_ARGS__)

/* ---- contractions that nothing packs ---- */

static tc_tensor norm_and_product(tc_tensor rows, int64_t c)
{
    tc_tensor y = tc_layer_norm(rows, TC_AXES(-1), INPUT(c), INPUT(c), 1e-6);
    return tc_linear(y, INPUT(4 * c, c), TC_NONE);
}

/* One sum of products for each channel: no form packs it, so in one kernel with the product behind
 * the norm that one could not be packed either. */
TEST(a_product_shares_no_kernel_with_sums_of_single_channels)
{
    begin();
    tc_tensor taps = tc_einsum("btkc,kc->btc", TC_TENSORS(INPUT(8, 196, 7, 96), INPUT(7, 96)));
    tci_plan *p = plan_for(norm_and_product(taps, 96), processor);
    REQUIRE(p && p->n_kernels == 3);
    CHECK(contractions(p) == 1);
    CHECK(says(p, "sum is not computed with contract: in one kernel it would take longer"));
    CHECK(says(p, "contract gets memory: one kernel would take "));
    end();
}

TEST(the_products_of_a_convnext_block_have_kernels_of_their_own)
{
    begin();
    const int64_t c = 96, h = 56;
    tc_tensor x = INPUT(1, c, h, h);
    tc_tensor y = tc_conv2d(x, INPUT(c, 1, 7, 7), INPUT(c),
                            &(tc_conv){.padding = {3, 3}, .groups = c});
    y = norm_and_product(tc_permute(y, 0, 2, 3, 1), c);
    y = tc_permute(tc_linear(tc_gelu(y), INPUT(c, 4 * c), TC_NONE), 0, 3, 1, 2);
    tci_plan *p = plan_for(tc_add(tc_mul(y, INPUT(c, 1, 1)), x), processor);
    REQUIRE(p);
    CHECK(contractions(p) == 1);
    end();
}

/* ---- movement ---- */

static tc_tensor affine(tc_tensor x, int64_t c)
{
    return tc_relu(tc_add(tc_mul(x, INPUT(c, 1, 1)), INPUT(c, 1, 1)));
}

/* Twice as high and wide, each element four times. */
static tc_tensor upsampled(tc_tensor x, int64_t c, int64_t h)
{
    tc_tensor y = tc_expand(tc_reshape(x, 1, c, h, 1, h, 1), 1, c, h, 2, h, 2);
    return tc_reshape(y, 1, c, 2 * h, 2 * h);
}

static tc_tensor padded(tc_tensor x)
{
    return tc_pad(tc_pad(x, 2, 1, 1, 0), 3, 1, 1, 0);
}

/* A concatenation with a border reads the upsampled image at halves of its own index: from memory,
 * where each row is a row. */
TEST(an_upsampled_image_is_stored_before_it_is_joined_with_another_one)
{
    begin();
    const int64_t c = 64, h = 56;
    tc_tensor image = affine(INPUT(1, c, h, h), c), skip = affine(INPUT(1, c, 2 * h, 2 * h), c);
    tc_tensor y = padded(tc_cat(TC_TENSORS(upsampled(image, c, h), skip), 1));
    tci_plan *p = plan_for(y, processor);
    REQUIRE(p && p->n_kernels == 2);
    CHECK(highest(p, processor) < 4);
    CHECK(says(p, "reshape gets memory: one kernel would take "));
    end();
}

/* The same kernel, as it would be: many times what its bytes take. Accesses that are whole vectors
 * cost what their bytes do. */
TEST(movement_costs_what_its_accesses_become)
{
    begin();
    const int64_t c = 64, h = 56;
    tci_machine whole = processor;
    whole.facts.launch_ns = 1e9; /* then no cut pays */
    tc_tensor image = affine(INPUT(1, c, h, h), c), skip = affine(INPUT(1, c, 2 * h, 2 * h), c);
    tc_tensor y = padded(tc_cat(TC_TENSORS(upsampled(image, c, h), skip), 1));
    tci_plan *p = plan_for(y, whole);
    REQUIRE(p && p->n_kernels == 1);
    CHECK(highest(p, processor) > 10);
    tci_plan *plain = plan_for(padded(affine(INPUT(1, c, h, h), c)), processor);
    REQUIRE(plain && plain->n_kernels == 1);
    CHECK(highest(plain, processor) < 2);
    end();
}

/* ---- values that several stages evaluate ---- */

/* Vectors run along the last axis, so each stage of a softmax along the first one evaluates
 * tanh(x) for itself. */
TEST(a_value_that_three_stages_would_evaluate_is_stored)
{
    begin();
    tci_plan *p = plan_for(tc_softmax(tc_tanh(INPUT(64, 512)), 0), processor);
    REQUIRE(p);
    CHECK(p->n_kernels > 1);
    CHECK(says(p, " gets memory: one kernel would take "));
    end();
}

/* ---- what loops take ---- */

/* ns of y as one kernel. */
static double whole_ns(tc_tensor y)
{
    tci_machine whole = processor;
    whole.facts.launch_ns = 1e9; /* then no cut pays */
    tci_plan *p = plan_for(y, whole);
    return p && p->n_kernels == 1 ? tci_loop_price(&scratch, p->kernels[0], processor).ns : -1;
}

/* A sum of products is one operation for each product. */
TEST(a_product_and_its_sum_are_one_operation)
{
    begin();
    const double products = 512.0 * 512 * 512, lanes = processor.vector_bytes / 4.0;
    const tc_machine facts = tci_machine_complete(processor).facts;
    double ns = whole_ns(tc_matmul(INPUT(512, 512), INPUT(512, 512)));
    double least = products / (lanes * facts.ports * facts.ghz);
    CHECK_MSG(ns >= least && ns < 1.5 * least, "%g ns, at least %g", ns, least);
    end();
}

/* Nothing of the next element is begun in the time of a chain that is longer than a core looks
 * ahead. */
TEST(calls_that_wait_for_each_other_take_longer_than_their_operations)
{
    begin();
    tc_tensor x = INPUT(64, 2048);
    double one = whole_ns(tc_gelu(x)), two = whole_ns(tc_gelu(tc_gelu(x)));
    CHECK_MSG(one > 0 && two > 2.3 * one, "%g, %g ns", one, two);
    end();
}

/* Lanes that are two elements apart are in two vectors, which are loaded and shuffled: a line of 56
 * results takes 72 vectors, not 504 elements that are loaded one by one, and its memory traffic
 * is not repeated for each. Measured: 1.8 times its traffic. */
TEST(a_convolution_with_a_stride_of_two_gathers_no_lanes)
{
    begin();
    const int64_t c = 96, h = 112;
    tc_tensor y = tc_conv2d(INPUT(1, c, h, h), INPUT(c, 1, 3, 3), TC_NONE,
                            &(tc_conv){.stride = {2, 2}, .padding = {1, 1}, .groups = c});
    tci_plan *p = plan_for(tc_relu(y), processor);
    REQUIRE(p && p->n_kernels == 2); /* the padded image, and the products */
    CHECK_MSG(highest(p, processor) < 5, "%g", highest(p, processor));
    end();
}

/* A tile of vectors leaves one column block that is short: the price is that of all blocks. */
TEST(a_short_block_of_columns_is_not_taken_for_all)
{
    begin();
    double last = whole_ns(tc_softmax(INPUT(2, 50, 16 * 11), 1));
    for (int vectors = 12; vectors <= 24; vectors++) {
        double ns = whole_ns(tc_softmax(INPUT(2, 50, 16 * vectors), 1));
        CHECK_MSG(ns > 0.8 * last, "%d vectors: %g, before %g ns", vectors, ns, last);
        last = ns;
    }
    end();
}

/* Stores a row apart meet a line of memory again when it has left the first cache. */
TEST(lines_that_come_again_from_a_farther_cache_are_paid_again)
{
    begin();
    tc_tensor rows = tc_layer_norm(INPUT(56 * 56, 128), TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    tc_tensor turned = tc_layer_norm(tc_transpose(INPUT(128, 56 * 56), 0, 1), TC_AXES(-1), TC_NONE,
                                     TC_NONE, 1e-5);
    double near = whole_ns(rows), far = whole_ns(turned);
    CHECK_MSG(near > 0 && far > 2 * near, "%g, %g ns", near, far);
    end();
}

/* Groups that read each other and both cost too much are both cut. */
TEST(neighbours_are_cut_one_after_the_other)
{
    begin();
    const int64_t c = 32, h = 28;
    tc_tensor image = affine(INPUT(1, c, h, h), c), skip = tc_relu(INPUT(1, 16, 2 * h, 2 * h));
    tc_tensor both = tc_cat(TC_TENSORS(upsampled(image, c, h), skip), 1);
    tc_tensor y = tc_conv2d(both, INPUT(c, c + 16, 3, 3), TC_NONE, &(tc_conv){.padding = {1, 1}});
    y = tc_softmax(tc_tanh(tc_permute(y, 0, 2, 3, 1)), 1);
    tci_plan *p = plan_for(y, processor);
    REQUIRE(p);
    CHECK(contractions(p) == 1);
    CHECK(says(p, "reshape gets memory: one kernel would take "));
    CHECK(says(p, "max gets memory: one kernel would take "));
    end();
}

/* ---- what gains stays whole ---- */

TEST(groups_that_gain_stay_whole)
{
    begin();
    tc_tensor q = INPUT(2, 4, 256, 32), k = INPUT(2, 4, 256, 32), v = INPUT(2, 4, 256, 32);
    const tc_tensor wholes[] = {
        tc_scaled_dot_product_attention(q, k, v, TC_NONE, false, 0),
        tc_softmax(INPUT(512, 1000), -1),
        tc_layer_norm(INPUT(512, 768), TC_AXES(-1), INPUT(768), INPUT(768), 1e-5),
        tc_gelu(tc_linear(INPUT(256, 512), INPUT(512, 512), INPUT(512))),
        tc_tanh(tc_add(tc_mul(INPUT(512, 512), INPUT(512)), INPUT(512, 512))),
    };
    for (int i = 0; i < TCI_COUNT(wholes); i++) {
        tci_plan *p = plan_for(wholes[i], processor);
        REQUIRE(p);
        CHECK_MSG(p->n_kernels == 1, "program %d: %d kernels", i, p->n_kernels);
        CHECK_MSG(!says(p, "one kernel would take"), "program %d", i);
    }
    end();
}

/* Attention costs more than its floor; its trials, which gain less than a cut must, are told. */
TEST(a_plan_tells_the_cuts_that_it_tried_in_vain)
{
    begin();
    tc_tensor q = INPUT(2, 4, 256, 32), k = INPUT(2, 4, 256, 32), v = INPUT(2, 4, 256, 32);
    tci_plan *p = plan_for(tc_scaled_dot_product_attention(q, k, v, TC_NONE, false, 0), processor);
    REQUIRE(p && p->n_kernels == 1);
    double whole = 0, parts = 0;
    int tried = 0;
    const char *text = tci_str_text(&p->tried), *at = strchr(text, ':'), *best = strchr(text, ';');
    int found = at ? sscanf(at, ": %lf us by the model as it is, %lf us with ", &whole, &parts) : 0;
    found += best ? sscanf(best, "; best of %d values tried", &tried) : 0;
    CHECK_MSG(found == 3 && whole > 0 && whole < 1.2 * parts && tried > 1, "%s", text);
    CHECK(!strncmp(text, p->kernels[0]->name, strlen(p->kernels[0]->name)));
    end();
}

/* One group is cut, and trials cut attention in vain at the same time: these leave nothing in
 * memory in the plan that is made for the cut. */
TEST(values_that_a_refused_trial_stores_do_not_bind_the_next_plan)
{
    begin();
    tc_tensor q = INPUT(2, 4, 256, 32), k = INPUT(2, 4, 256, 32), v = INPUT(2, 4, 256, 32);
    tc_tensor y[2] = {tc_scaled_dot_product_attention(q, k, v, TC_NONE, false, 0),
                      tc_softmax(tc_tanh(INPUT(64, 512)), 0)};
    y[0] = tc_materialize(tc_reshape(y[0], 2 * 4 * 256 * 32));
    y[1] = tc_materialize(tc_reshape(y[1], 64 * 512));
    tci_plan *p = plan_for(tc_cat(TC_TENSORS(y[0], y[1]), 0), processor);
    REQUIRE(p);
    CHECK(says(p, " gets memory: one kernel would take "));
    CHECK_HAS(tci_str_text(&p->tried), " values tried");
    CHECK_EQ_INT(contractions(p), 2);
    end();
}

/* Ops that are kept apart are not priced. */
TEST(ops_that_are_kept_apart_are_left_alone)
{
    begin();
    tci_machine apart = processor;
    apart.no_fusion = true;
    tci_plan *p = plan_for(tc_softmax(tc_tanh(INPUT(64, 512)), 0), apart);
    REQUIRE(p);
    CHECK(!says(p, "one kernel would take"));
    end();
}

TEST_MAIN
