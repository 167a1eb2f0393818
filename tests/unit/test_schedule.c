/* Schedules for machines that are not here: every loop is sound, asks for no more than the machine
 * has, and what decides sums is the same on all machines of one kind. */
#define TC_CUDA
#include "inside.h"

#include "../tc_test.h"
#include "../fuzz/draw.h"
#include "machines.h"

#include <setjmp.h>

static tc_ctx *ctx;
static tci_scratch scratch;

static void begin(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    CHECK(tc_ctx_make(&ctx, &o) == TC_OK);
    tci_scratch_init(&scratch);
}

static void end(void)
{
    tci_scratch_free(&scratch);
    tc_ctx_free(ctx);
}

/* The plan of y for a machine, its kernels with their classes; in scratch. */
static tci_plan *plan_for(tc_tensor y, tci_machine machine)
{
    tci_node *root = tci_handle_node(y);
    tci_target target;
    memset(&target, 0, sizeof(target));
    tci_request *r = tci_request_make(&scratch, NULL, 0, &root, 1, &tci_ctx_of(ctx)->options,
                                      "test", &target);
    tci_request_copy copy = tci_request_copy_graph(&scratch, r, NULL);
    tci_node **now = tci_rewrite(&scratch, copy.graph, copy.roots, 1);
    tci_plan *plan = tci_plan_make(&scratch, copy.graph, copy.inputs, r->n_inputs, copy.literals,
                                   r->n_literals, now, 1, machine);
    return plan;
}

enum { PROGRAMS = 14 };

/* Programs that between them reach every form. */
static tc_tensor program(int i)
{
    tc_tensor a = tc_input(ctx, "a", TC_F32, 300, 1000), b = tc_input(ctx, "b", TC_F32, 1000, 700);
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 512, 512), y = tc_input(ctx, "y", TC_BF16, 512, 512);
    tc_tensor far = tc_input(ctx, "far", TC_F32, 4096, 4096);
    switch (i) {
    case 0: return tc_add(a, 1);
    case 1: return tc_transpose(tc_mul(a, a), 0, 1);
    case 2: return tc_matmul(a, b);
    case 3: return tc_softmax(a, 1);
    case 4: return tc_sum(a, TC_AXES(0), false);
    case 5: return tc_sum(a, TC_AXES(1), false);
    case 6: return tc_sum(far, TC_ALL, false);
    case 7: return tc_sum(far, TC_AXES(0), false);
    case 8: return tc_matmul(x, y);
    case 9: return tc_cumsum(a, 0);
    case 10: return tc_softmax(far, 1);
    case 11: return tc_argmax(a, 1, false);
    case 12: return tc_matmul(tc_transpose(b, 0, 1), tc_transpose(a, 0, 1));
    default: return tc_add(far, 1);
    }
}

static int64_t shared_bytes_of(const tci_loop *l)
{
    int64_t bytes = 0;
    for (int i = 0; i < l->n_locals; i++) {
        bool shared = l->locals[i].work < 0 && !l->locals[i].is_lane && !l->locals[i].is_given;
        bytes += shared ? l->locals[i].n * tci_dtype_get((tc_dtype)l->locals[i].dtype)->bytes : 0;
    }
    return bytes;
}

static void check_loop(const char *where, const tci_kernel *k, tci_machine machine)
{
    tci_launch launch;
    const tci_loop *l = tci_loop_schedule(&scratch, k, machine, &launch);
    tci_loop_verify(&scratch, l);
    CHECK_MSG(l->threads <= TCI_MAX(machine.block_threads, 1), "%s: %d threads", where, l->threads);
    if (machine.block_threads > 0) {
        int64_t most = l->matrix ? machine.facts.shared_most : machine.facts.shared_bytes;
        int64_t used = l->matrix ? tci_matrix_shared_bytes(l->matrix) : shared_bytes_of(l);
        CHECK_MSG(used <= most, "%s: %lld bytes of shared memory, of %lld (%s)", where,
                  (long long)used, (long long)most, launch.note);
    } else {
        CHECK_MSG(launch.lanes <= machine.vector_bytes, "%s: %d lanes", where, launch.lanes);
    }
}

TEST(machines_that_are_not_here)
{
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "a loop is not sound: %s", scratch.message);
        end();
        return;
    }
    for (int i = 0; i < PROGRAMS; i++) {
        tc_tensor y = program(i);
        for (int m = 0; m < TEST_MACHINES; m++) {
            const tci_plan *p = plan_for(y, test_machines[m].machine);
            for (int k = 0; k < p->n_kernels; k++) {
                char where[100];
                snprintf(where, sizeof(where), "program %d on %s: %s", i, test_machines[m].name,
                         p->kernels[k]->name);
                check_loop(where, p->kernels[k], test_machines[m].machine);
            }
        }
    }
    end();
}

static const char *kernels_text(tc_tensor y, tci_machine machine)
{
    const tci_plan *p = plan_for(y, machine);
    tci_str text = {.s = &scratch};
    for (int k = 0; k < p->n_kernels; k++) {
        tci_kernel_print(&text, p->kernels[k]);
    }
    return tci_str_text(&text);
}

/* The kernels, and with them the order of every sum, are those of the kind of machine. */
TEST(facts_change_no_sum)
{
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    for (int i = 0; i < PROGRAMS; i++) {
        tc_tensor y = program(i);
        for (int m = 0; m < TEST_MACHINES; m++) {
            tci_machine machine = test_machines[m].machine, plain = machine;
            memset(&plain.facts, 0, sizeof(plain.facts));
            CHECK_MSG(!strcmp(kernels_text(y, machine), kernels_text(y, plain)),
                      "program %d: the facts of %s change its kernels", i, test_machines[m].name);
        }
        tci_machine small = test_machines[TEST_SMALL_GPU].machine;
        tci_machine large = test_machines[TEST_H200].machine;
        large.matrix_units = 0; /* a class of its own */
        CHECK_MSG(!strcmp(kernels_text(y, small), kernels_text(y, large)),
                  "program %d: two GPUs have different kernels", i);
    }
    end();
}

/* ---- work for all processors ---- */

/* As a user writes it: statistics over all axes of x but the second. */
static tc_tensor batch_norm(tc_tensor x)
{
    tc_tensor off = tc_sub(x, tc_mean(x, TC_AXES(0, 2, 3), true));
    tc_tensor variance = tc_mean(tc_square(off), TC_AXES(0, 2, 3), true);
    return tc_mul(off, tc_rsqrt(tc_add(variance, 1e-5)));
}

static tc_tensor batch_norm_grad(tc_tensor x)
{
    tc_tensor loss = tc_sum(tc_mul(batch_norm(x), x), TC_ALL, false), grad = TC_NONE;
    CHECK(tc_grad(loss, &x, 1, &grad) == TC_OK);
    return grad;
}

/* Every kernel of y that moves more than a megabyte has 1024 threads for each processor of the
 * large GPU. */
static void check_busy(const char *name, tc_tensor y)
{
    const tci_machine machine = test_machines[TEST_H200].machine;
    const int64_t least = 1024 * (int64_t)machine.facts.processors;
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s: %s", name, scratch.message);
        return;
    }
    const tci_plan *p = plan_for(y, machine);
    for (int i = 0; i < p->n_kernels; i++) {
        tci_launch launch;
        const tci_loop *l = tci_loop_schedule(&scratch, p->kernels[i], machine, &launch);
        int64_t threads = tci_dim_known(launch.n_tasks) * l->threads * l->rows;
        CHECK_MSG(p->kernels[i]->bytes < 1 << 20 || threads >= least, "%s: %s has %lld threads, %s",
                  name, p->kernels[i]->name, (long long)threads, launch.note);
    }
}

/* Sums with few results are cut in parts that keep a device busy, each of them one long row where
 * memory has it so, and what is done to every element is not left to as few blocks as there are
 * results. */
TEST(few_results)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16, 64, 112, 112);
    tc_tensor rows = tc_input(ctx, "rows", TC_F32, 64, 300000);
    check_busy("batch norm", batch_norm(x));
    check_busy("its gradient", batch_norm_grad(x));
    check_busy("softmax", tc_softmax(rows, 1));
    end();
}

/* The first kernel of y on the large GPU: blocks, and threads of each. */
static void check_blocks(const char *name, tc_tensor y, int64_t blocks, int threads)
{
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s: %s", name, scratch.message);
        return;
    }
    const tci_machine machine = test_machines[TEST_H200].machine;
    tci_launch launch;
    const tci_loop *l = tci_loop_schedule(&scratch, plan_for(y, machine)->kernels[0], machine,
                                          &launch);
    CHECK_MSG(tci_dim_known(launch.n_tasks) == blocks && l->threads * l->rows == threads,
              "%s: %lld blocks of %d threads, %s", name, (long long)tci_dim_known(launch.n_tasks),
              l->threads * l->rows, launch.note);
    tci_loop_verify(&scratch, l);
}

/* Rows that a warp or less can hold share blocks, few threads to each that hold several vectors,
 * and so do points of windows and pieces of rows between two cuts; where a warp would be left with
 * some of its rows each row has a warp, and a row alone has a block. Of a map that reads a factor
 * for each place of a row, a thread has several rows, for which it reads that once. */
TEST(several_rows_a_block)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 100000, 32);
    tc_tensor odd = tc_input(ctx, "odd", TC_F32, 99999, 32);
    tc_tensor rows = tc_input(ctx, "rows", TC_F32, 8000, 256);
    tc_tensor few = tc_input(ctx, "few", TC_F32, 100, 256);
    tc_tensor image = tc_input(ctx, "image", TC_F32, 16, 64, 56, 56);
    const tc_pool how = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    check_blocks("rows of 32", tc_softmax(x, 1), (100000 + 63) / 64, 4 * 64);
    check_blocks("an odd number of them", tc_softmax(odd, 1), (99999 + 7) / 8, 32 * 8);
    check_blocks("rows of 256", tc_softmax(rows, 1), 8000 / 16, 16 * 16);
    check_blocks("few rows", tc_softmax(few, 1), 100, 32);
    tc_tensor q = tc_input(ctx, "q", TC_F32, 16, 128, 12, 64);
    tc_tensor angle = tc_input(ctx, "angle", TC_F32, 128, 64);
    tc_tensor heads = tc_rope(tc_transpose(q, 1, 2), angle, angle);
    check_blocks("turned heads", heads, 16 * 12 * 128 / 16, 16 * 8);
    check_blocks("a short row", tc_add(tc_input(ctx, "one", TC_F32, 32), 1), 1, 32);
    check_blocks("windows", tc_max_pool2d(image, &how), 16 * 64 * 28 * 28 / 256, 256);
    tc_tensor places = tc_input(ctx, "places", TC_BF16, 200000, 96);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, 96);
    check_blocks("four rows of 96 a thread", tc_mul(places, scale),
                 (200000 / 4 * 96 / 8 + 127) / 128, 128);
    end();
}

/* A convolution's image is copied to channels last by squares that a block exchanges: no launch
 * shared with the copy of its filters has room for them. */
TEST(turned_images_have_a_launch_of_their_own)
{
    begin();
    tci_machine machine = tci_machine_complete(test_machines[TEST_H200].machine);
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 64, 128, 28, 28);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, 128, 128, 3, 3);
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
    machine.groups_launches = true;
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    const tci_plan *p = plan_for(y, machine);
    CHECK(p->n_kernels > 1);
    for (int k = 0; k < p->n_kernels; k++) {
        CHECK_MSG(p->kernels[k]->n_members == 0, "%s", p->kernels[k]->name);
    }
    end();
}

/* Products of one operand that are too short for several threads each are one launch on a
 * processor, those that are not have one each. */
TEST(products_of_one_operand_share_a_launch)
{
    begin();
    tci_machine machine = {.vector_bytes = 64,
                           .thread_scratch = true,
                           .groups_launches = true,
                           .facts = {.processors = 4}};
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    machine = tci_machine_complete(machine);
    for (int size = 64; size <= 1024; size *= 16) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, size, size), y[8];
        for (int i = 0; i < 8; i++) {
            tc_tensor w = tc_input(ctx, "w", TC_F32, size, size);
            y[i] = tc_maximum(tc_matmul(x, w), 0);
        }
        const tci_plan *p = plan_for(tc_cat(TC_TENSORS_N(y, 8), 0), machine);
        int joined = 0, alone = 0;
        for (int t = 0; t < p->n_steps; t++) {
            const tci_kernel *k = p->kernels[p->steps[t].kernel];
            joined += k->n_members == 8 && k->members[0]->n_reds == 1 &&
                      k->members[0]->reds[0].op == TCI_RED_DOT;
            alone += k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT;
        }
        CHECK_EQ_INT(joined, size == 64 ? 1 : 0);
        CHECK_EQ_INT(alone, size == 64 ? 0 : 8);
    }
    end();
}

/* Sums down columns have neighbours in neighbouring lanes also where each row has a factor that is
 * read from memory: such a factor is the same for all columns. */
TEST(columns_with_a_factor_a_row)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 300, 1000), r = tc_input(ctx, "r", TC_F32, 300, 1);
    tc_tensor y = tc_sum(tc_mul(tc_exp(x), r), TC_AXES(0), false);
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    for (int m = 0; m < TEST_MACHINES; m++) {
        const tci_plan *p = plan_for(y, test_machines[m].machine);
        CHECK_MSG(p->kernels[0]->vector == TCI_VEC_OUTER, "on %s the sums are rows",
                  test_machines[m].name);
    }
    end();
}

/* ---- schedules as values ---- */

static void check_candidate(const char *where, const tci_query *a, const tci_sched *s)
{
    tci_str text = {.s = &scratch}, again = {.s = &scratch}, why = {.s = &scratch};
    tci_launch launch;
    tci_sched parsed;
    tci_sched_print(&text, s);
    CHECK_MSG(tci_sched_parse(tci_str_text(&text), &parsed, &why), "%s, %s: %s", where, text.text,
              tci_str_text(&why));
    tci_sched_print(&again, &parsed);
    CHECK_STR(tci_str_text(&again), tci_str_text(&text));
    CHECK_MSG(tci_sched_fits(a, &parsed), "%s: %s does not fit", where, text.text);
    CHECK_MSG(s->cost_ns > 0, "%s: %s costs nothing", where, text.text);
    tci_loop_verify(&scratch, tci_sched_build(a, s, &launch));
    CHECK_MSG(strlen(launch.note) < sizeof(launch.note) - 1, "%s: %s", where, launch.note);
}

/* Every candidate on every machine: its text parses back, its loops are sound. */
TEST(candidates)
{
    int n_candidates = 0;
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    for (int i = 0; i < PROGRAMS; i++) {
        tc_tensor y = program(i);
        for (int m = 0; m < TEST_MACHINES; m++) {
            const tci_plan *p = plan_for(y, test_machines[m].machine);
            for (int k = 0; k < p->n_kernels; k++) {
                char where[100];
                tci_sched list[TCI_SCHED_MOST];
                const tci_query *a = tci_query_make(&scratch, p->kernels[k],
                                                    test_machines[m].machine);
                int n = tci_sched_candidates(a, list, TCI_SCHED_MOST);
                snprintf(where, sizeof(where), "program %d on %s: %s", i, test_machines[m].name,
                         p->kernels[k]->name);
                CHECK_MSG(n >= 1, "%s: no schedule", where);
                for (int c = 0; c < n; c++) {
                    CHECK(c == 0 || list[c].cost_ns >= list[c - 1].cost_ns);
                    check_candidate(where, a, &list[c]);
                }
                n_candidates += n;
            }
        }
    }
    CHECK_MSG(n_candidates > 3 * PROGRAMS * TEST_MACHINES, "%d candidates", n_candidates);
    end();
}

/* How many candidates of y's kernels there are; none costs less than the machine can do it in. */
static int check_costs(const char *what, tc_tensor y, const char *name, tci_machine machine)
{
    const tci_plan *p = plan_for(y, machine);
    int all = 0;
    for (int k = 0; k < p->n_kernels; k++) {
        tci_sched list[TCI_SCHED_MOST];
        const tci_query *a = tci_query_make(&scratch, p->kernels[k], machine);
        int n = tci_sched_candidates(a, list, TCI_SCHED_MOST);
        double least = tci_query_least_ns(a);
        for (int c = 0; c < n; c++) {
            tci_str text = {.s = &scratch};
            tci_sched_print(&text, &list[c]);
            CHECK_MSG(list[c].cost_ns >= least * (1 - 1e-9),
                      "%s on %s, %s: %s costs %g ns, at best %g", what, name, p->kernels[k]->name,
                      tci_str_text(&text), list[c].cost_ns, least);
        }
        all += n;
    }
    return all;
}

/* The same for all machines, and for one processor of the first. */
static int check_costs_anywhere(const char *what, tc_tensor y)
{
    tci_machine one = test_machines[TEST_LAPTOP].machine;
    one.facts.processors = 1;
    int all = check_costs(what, y, "one core", one);
    for (int m = 0; m < TEST_MACHINES; m++) {
        all += check_costs(what, y, test_machines[m].name, test_machines[m].machine);
    }
    return all;
}

TEST(no_schedule_beats_the_machine)
{
    enum { DRAWN = 120 };
    int n_candidates = 0;
    char what[40];
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    for (int i = 0; i < PROGRAMS; i++) {
        snprintf(what, sizeof(what), "program %d", i);
        n_candidates += check_costs_anywhere(what, program(i));
    }
    tc_tensor a = tc_input(ctx, "rows", TC_BF16, 64, 8192);
    tc_tensor b = tc_input(ctx, "columns", TC_BF16, 8192, 16384);
    tc_tensor c = tc_input(ctx, "short", TC_F32, 8192, 16);
    n_candidates += check_costs_anywhere("a product of few rows", tc_matmul(a, b));
    n_candidates += check_costs_anywhere("outer", tc_matmul(c, tc_transpose(c, 0, 1)));
    for (uint64_t seed = 1; seed <= DRAWN; seed++) {
        fz_recipe f;
        fz_graph g;
        memset(&f, 0, sizeof(f));
        memset(&g, 0, sizeof(g));
        fz_draw_recipe(&f, seed, ctx);
        snprintf(what, sizeof(what), "drawn %d", (int)seed);
        if (fz_build(&f, ctx, &g)) {
            n_candidates += check_costs_anywhere(what, g.outputs[0]);
        }
        fz_graph_free(&g);
    }
    CHECK_MSG(n_candidates > 1500, "%d candidates", n_candidates);
    end();
}

static void check_choice(tc_tensor y, int machine, const char *part)
{
    const tci_plan *p = plan_for(y, test_machines[machine].machine);
    const tci_kernel *k = p->kernels[p->n_kernels - 1];
    tci_launch launch;
    tci_loop_schedule(&scratch, k, test_machines[machine].machine, &launch);
    const char *end = strstr(launch.why, " in "); /* the others follow */
    REQUIRE(end != NULL);
    CHECK_HAS(tci_scratch_printf(&scratch, "%.*s ", (int)(end - launch.why), launch.why), part);
}

/* Of an image of 14 x 14, or its gradient to the filters. */
static tc_tensor convolution(bool gradient)
{
    tc_tensor image = tc_input(ctx, "image", TC_F32, 1, 64, 14, 14);
    tc_tensor filter = tc_input(ctx, "filter", TC_F32, 64, 64, 3, 3), to_filter = TC_NONE;
    tc_tensor y = tc_conv2d(image, filter, TC_NONE, &(tc_conv){.padding = {1, 1}});
    tc_grad(tc_sum(tc_square(y), TC_ALL, false), &filter, 1, &to_filter);
    return gradient ? to_filter : y;
}

/* What bench/regret found to be several times faster than what the model once took. */
TEST(choices)
{
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    tc_tensor few = tc_input(ctx, "few", TC_F32, 8, 512);
    tc_tensor wide = tc_input(ctx, "wide", TC_F32, 512, 2048);
    tc_tensor a = tc_input(ctx, "a", TC_F32, 256, 64), apart = tc_input(ctx, "b", TC_F32, 64, 1024);
    tc_tensor close = tc_input(ctx, "c", TC_F32, 64, 256);
    tc_tensor h = tc_input(ctx, "h", TC_BF16, 65, 64), g = tc_input(ctx, "g", TC_BF16, 64, 64);
    tc_tensor five = tc_input(ctx, "five", TC_F32, 1000, 5);
    check_choice(tc_matmul(few, wide), TEST_H200, "tile rows=1 "); /* not one tile of all rows */
    check_choice(tc_matmul(a, apart), TEST_LAPTOP, "packed ");     /* rows a page apart */
    check_choice(tc_matmul(a, close), TEST_LAPTOP, "tile ");
    check_choice(tc_matmul(h, g), TEST_LAPTOP, "packed rows=5 "); /* each load converts */
    check_choice(convolution(false), TEST_LAPTOP, "packed ");     /* 196 columns, not 14 */
    check_choice(convolution(true), TEST_LAPTOP, "packed ");      /* 64 filters, not 3 columns */
    check_choice(tc_flip(five, 1), TEST_LAPTOP, "lanes=4 ");      /* no vector is full of 8 */
    check_choice(tc_sin(a), TEST_LAPTOP, "lanes=8 ");
    tc_tensor long_rows = tc_input(ctx, "long", TC_F32, 4096, 512); /* whole lines, 256 bytes */
    tc_tensor ragged = tc_input(ctx, "ragged", TC_F32, 4001, 512);
    tc_tensor half = tc_input(ctx, "half", TC_BF16, 8192, 512);
    check_choice(tc_transpose(long_rows, 0, 1), TEST_LAPTOP, "square stream=1");
    check_choice(tc_transpose(ragged, 0, 1), TEST_LAPTOP, "square stream=0");
    check_choice(tc_transpose(half, 0, 1), TEST_LAPTOP, "square stream=1");
    tc_tensor words = tc_input(ctx, "words", TC_F32, 50257, 768);
    tc_tensor rows = tc_input(ctx, "rows", TC_F32, 8, 768); /* weights are read once */
    check_choice(tc_matmul(rows, tc_permute(words, 1, 0)), TEST_H200, "rows=16 columns=128 ");
    tc_tensor narrow = tc_input(ctx, "narrow", TC_F32, 1000, 64);
    tc_tensor turned = tc_input(ctx, "turned", TC_F32, 1000, 1000); /* 4000 bytes a point */
    check_choice(tc_matmul(tc_permute(turned, 1, 0), narrow), TEST_LAPTOP, "packed ");
    tc_tensor small = tc_input(ctx, "small", TC_F32, 1, 256, 7, 7); /* 49 columns: 7 vectors */
    tc_tensor filter = tc_input(ctx, "filter", TC_F32, 256, 256, 3, 3);
    check_choice(tc_conv2d(small, filter, TC_NONE, &(tc_conv){.padding = {1, 1}}), TEST_LAPTOP,
                 " unroll=1 ");
    /* every place of a small image twice: it is made apart, and vectors are those of the product */
    tc_tensor image = tc_input(ctx, "image", TC_F32, 1, 256, 28, 28);
    tc_tensor point = tc_input(ctx, "point", TC_F32, 64, 256, 1, 1);
    tc_tensor half_size = tc_input(ctx, "half size", TC_F32, 1, 64, 14, 14);
    tc_tensor twice = tc_interpolate(half_size,
                                     &(tc_interpolation){.mode = "nearest", .size = {28, 28}});
    check_choice(tc_add(tc_conv2d(image, point, TC_NONE, NULL), twice), TEST_LAPTOP, "packed ");
    tc_tensor many = tc_input(ctx, "many", TC_BF16, 1 << 24), some = tc_slice(many, 0, 0, 4096, 1);
    check_choice(tc_tanh(tc_exp(many)), TEST_H200, "map unroll=2 "); /* arithmetic is longest */
    check_choice(tc_tanh(tc_exp(some)), TEST_H200, "map unroll=1 ");
    check_choice(tc_add(many, 1), TEST_H200, "map unroll=1 ");
    end();
}

/* Tasks of the last kernel of y, and how much of its time a call takes before the first one. */
static int64_t tasks_of(tc_tensor y, int machine, double *call_share)
{
    const tci_plan *p = plan_for(y, test_machines[machine].machine);
    tci_launch launch;
    tci_loop_schedule(&scratch, p->kernels[p->n_kernels - 1], test_machines[machine].machine,
                      &launch);
    CHECK_HAS(launch.why, "packed ");
    *call_share = launch.call_ns / (launch.task_ns * (double)tci_dim_known(launch.n_tasks));
    return tci_dim_known(launch.n_tasks);
}

/* Where there are many threads, columns are packed in narrower blocks, so that what each packs is
 * a small part of what it multiplies; but not where that has no use. */
TEST(threads_have_their_own_columns)
{
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    double few, many;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 512, 512), b = tc_input(ctx, "b", TC_F32, 512, 512);
    tc_tensor image = tc_input(ctx, "image", TC_F32, 1, 256, 14, 14);
    tc_tensor filter = tc_input(ctx, "filter", TC_F32, 256, 256, 3, 3);
    tc_tensor large = tc_input(ctx, "large", TC_F32, 4096, 4096);
    tc_tensor y = tc_conv2d(image, filter, TC_NONE, &(tc_conv){.padding = {1, 1}});
    int64_t at_home = tasks_of(y, TEST_LAPTOP, &few), there = tasks_of(y, TEST_SERVER, &many);
    CHECK_MSG(there >= 64, "%lld tasks, %lld at home", (long long)there, (long long)at_home);
    CHECK_MSG(many < 0.03, "packing before the first task: %g, at home %g", many, few);
    there = tasks_of(tc_matmul(a, b), TEST_SERVER, &many);
    CHECK_MSG(there >= 128 && many < 0.01, "%lld tasks, %g", (long long)there, many);
    check_choice(tc_matmul(large, large), TEST_SERVER, " columns=256 ");
    end();
}

static void check_refused(const char *text, const char *part)
{
    tci_str why = {.s = &scratch};
    tci_sched s;
    CHECK_MSG(!tci_sched_parse(text, &s, &why), "'%s' is taken", text);
    CHECK_HAS(tci_str_text(&why), part);
}

TEST(texts_that_are_no_schedule)
{
    begin();
    check_refused("", "no form is given");
    check_refused("tail rows=1", "there is no form 'tail': expected point map");
    check_refused("panel rows=1 columns=2", "panel needs unroll=NUMBER");
    check_refused("panel rows=1 columns=2 unroll=", "panel takes no 'unroll='");
    check_refused("panel rows=1 rows=1 columns=2 unroll=1", "panel takes no 'rows=1'");
    check_refused("block unroll=-1", "block takes no 'unroll=-1'");
    check_refused("block unroll=99999999999999999999", "block takes no");
    check_refused("block unroll=1 lanes=2", "block takes no 'lanes=2'");
    end();
}

/* A forced schedule is taken where it fits; where not, the cheapest is, and it is said why. */
TEST(forced)
{
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        end();
        return;
    }
    tci_machine machine = test_machines[TEST_LAPTOP].machine;
    const tci_kernel *k = plan_for(program(2), machine)->kernels[0];
    tci_launch model, launch;
    tci_str why = {.s = &scratch};
    tci_loop_schedule(&scratch, k, machine, &model);
    tci_loop_schedule_as(&scratch, k, machine, "tile rows=3 unroll=1 lanes=8 threads=1", &why,
                         &launch);
    CHECK_EQ_INT(why.n, 0);
    CHECK_HAS(launch.note, "tile 3x1");
    CHECK_HAS(launch.why, "tile rows=3 unroll=1 lanes=8 threads=1 in ");
    tci_loop_schedule_as(&scratch, k, machine, "square stream=0", &why, &launch);
    CHECK_HAS(tci_str_text(&why), "does not fit");
    CHECK_STR(launch.note, model.note);
    end();
}

/* What schedules go by is in the keys, and how many cores there are is not, but whether many. */
TEST(record_in_keys)
{
    tci_machine one = test_machines[TEST_LAPTOP].machine, other = one;
    char a[320], b[320];
    tci_machine_text(&one, a, sizeof(a));
    CHECK(strlen(a) < sizeof(a) - 40);
    other.facts.processors = 6;
    tci_machine_text(&other, b, sizeof(b));
    CHECK(!strcmp(a, b));
    other.facts.processors = one.facts.processors = 64;
    tci_machine_text(&one, a, sizeof(a));
    CHECK(strcmp(a, b) != 0);
    other.facts.processors = 12;
    tci_machine_text(&other, b, sizeof(b));
    CHECK(!strcmp(a, b));
    other.facts.cache_bytes[1] *= 2;
    tci_machine_text(&other, b, sizeof(b));
    CHECK(strcmp(a, b) != 0);
    one = other = test_machines[TEST_H200].machine;
    other.facts.processors = 78;
    tci_machine_text(&one, a, sizeof(a));
    tci_machine_text(&other, b, sizeof(b));
    CHECK(strcmp(a, b) != 0);
}

/* The backend of this processor fills the record in. */
TEST(this_processor)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "cpu";
    const tci_backend *b = tci_backend_pick(&o);
    if (!b || !b->calls) {
        SKIP("no cpu backend");
    }
    tci_machine m = tci_backend_machine(b, &o);
    CHECK(m.facts.processors >= 1 && m.facts.processors == tci_os_cpu_count());
    CHECK(m.facts.cache_bytes[0] >= 4096 && m.facts.cache_bytes[2] >= m.facts.cache_bytes[0]);
    CHECK(m.facts.ghz > 0 && m.facts.one_gbs > 0 && b->target.record[0]);
}

TEST_MAIN
