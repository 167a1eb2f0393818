/* tests/unit/test_undo_log.c - fusion goes on from where a value was found to need memory: what is
 * undone is as if it had never been placed, and how much is done again. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;
static tci_scratch scratch;

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

enum { MOST_OUTPUTS = 4 };
/* Results, as the nodes that are fused. Results must be reproducible: so no pattern joins groups
 * when the rounds are over. */
typedef struct graph {
    tci_node *outputs[MOST_OUTPUTS];
    int n;
} graph;

static graph graph_of(const tc_tensor *y, int n)
{
    graph g = {.n = n};
    tci_node *roots[MOST_OUTPUTS];
    for (int i = 0; i < n; i++) {
        REQUIRE(tc_status_of(y[i]) == TC_OK);
        roots[i] = tci_handle_node(y[i]);
    }
    tci_request *r = tci_request_make(&scratch, NULL, 0, roots, n, &tci_ctx_of(ctx)->options, NULL,
                                      NULL);
    tci_request_copy copy = tci_request_copy_graph(&scratch, r, NULL);
    tci_node **now = tci_rewrite(&scratch, copy.graph, copy.roots, n);
    for (int i = 0; i < n; i++) {
        g.outputs[i] = now[i];
    }
    return g;
}

static tci_fusion *fuse(const graph *g, const tci_table *forced)
{
    const tci_machine machine = {.vector_bytes = 32, .reproducible = true};
    tci_str why = {.s = &scratch};
    tci_scores_kernels *none = TCI_NEW(&scratch, tci_scores_kernels);
    none->of = tci_table_in(&scratch, sizeof(int32_t));
    return tci_plan_fuse(&scratch, g->outputs, g->n, NULL, NULL, forced, NULL, NULL, none, NULL, 0,
                         machine, NULL, &why);
}

/* ---- graphs ---- */

static unsigned draw(unsigned *state, unsigned n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* An op of earlier values, each of them n x n: costly ones, movement, sums. */
static tc_tensor step(unsigned *state, const tc_tensor *have, int n)
{
    tc_tensor x = have[draw(state, (unsigned)n)], y = have[draw(state, (unsigned)n)];
    tc_tensor last = have[n - 1];
    switch (draw(state, 10)) {
    case 0: return tc_exp(x);
    case 1: return tc_sin(tc_add(last, y));
    case 2: return tc_mul(last, x);
    case 3: return tc_softmax(last, 1);
    case 4: return tc_transpose(tc_tanh(x), 0, 1);
    case 5: return tc_sub(last, tc_mean(y, TC_AXES(0), true));
    case 6: return tc_matmul(last, tc_exp(x));
    case 7: return tc_add(tc_cumsum(y, (int)draw(state, 2)), last);
    case 8: return tc_flip(tc_sqrt(tc_abs(last)), 1);
    default: return tc_add(x, tc_sum(tc_exp(y), TC_AXES(1), true));
    }
}

static graph random_graph(unsigned seed)
{
    enum { MOST = 48 };
    tc_tensor have[MOST], out[MOST_OUTPUTS];
    unsigned state = seed;
    int64_t size = 4 + draw(&state, 60);
    int n = 0, n_out = 1 + (int)draw(&state, MOST_OUTPUTS);
    have[n++] = tc_input(ctx, "x", TC_F32, size, size);
    have[n++] = tc_input(ctx, "y", TC_F32, size, size);
    for (int most = 6 + (int)draw(&state, MOST - 6); n < most; n++) {
        have[n] = step(&state, have, n);
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = have[i ? 2 + draw(&state, (unsigned)n - 2) : (unsigned)n - 1];
    }
    return graph_of(out, n_out);
}

/* ---- undone is as never done ---- */

static const char *text_of(const tci_fusion *f)
{
    tci_str text = {.s = &scratch};
    tci_fusion_print(&text, f);
    return tci_str_text(&text);
}

/* What is stored, whatever the reason is. */
static void forget_reasons(tci_fusion *f, tci_table *forced)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = tci_pnode_of(f, f->nodes.items[i]);
        p->why = TCI_WHY_COUNT;
        if (p->forced) {
            tci_table_add(forced, f->nodes.items[i]);
        }
    }
}

static tci_store_mode mode_of(const tci_fusion *f)
{
    return f->round > 5 ? TCI_STORE_NOTHING : TCI_STORE_BY_GROUP; /* none is last by root */
}

/* Placed once more from any node on, the groups are those that they were. */
static void check_again(tci_fusion *f, const char *text, unsigned seed)
{
    for (int from = f->nodes.n; from >= 0; from -= 1 + f->nodes.n / 8) {
        tci_group_round(f, from, mode_of(f));
        CHECK_EQ_INT(f->first_forced, f->nodes.n);
        for (int g = 0; g < f->n_groups; g++) {
            f->order[g] = g; /* the text has them in the order in which they run: any will do */
        }
        CHECK_MSG(!strcmp(text_of(f), text), "seed %u, from %d: %s\n%s", seed, from, text,
                  text_of(f));
    }
}

static void check_undone(tci_fusion *f)
{
    tci_undo_undo(f, 0);
    CHECK(f->n_roots == 0 && f->n_groups == 0 && f->n_refusals == 0 && f->trail.n_facts == 0);
    for (int i = 0; i < f->nodes.n; i++) {
        const tci_pnode *p = tci_pnode_of(f, f->nodes.items[i]);
        CHECK(p->root == -1 && p->home == -1 && p->group == -1 && p->operand_of == -1);
        CHECK_EQ_INT(p->n_homes, 0);
    }
}

/* Begun anew with the same values in memory, groups come out in one round and are the same. */
TEST(undone_is_as_never_done)
{
    enum { GRAPHS = 300 };
    int several = 0, most = 0, spared = 0;
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        return;
    }
    for (unsigned seed = 1; seed <= GRAPHS; seed++) {
        graph g = random_graph(seed);
        tci_table none = tci_table_in(&scratch, sizeof(bool)), forced = none;
        tci_fusion *f = fuse(&g, &none);
        forget_reasons(f, &forced);
        tci_fusion *anew = fuse(&g, &forced);
        if (mode_of(f) == TCI_STORE_BY_GROUP) {
            CHECK_EQ_INT(anew->round, 1);
            CHECK_MSG(!strcmp(text_of(f), text_of(anew)), "seed %u:\n%s\n%s", seed, text_of(f),
                      text_of(anew));
        }
        several += f->round > 1;
        most = f->round > most ? f->round : most;
        spared += f->n_placed - f->n_probed;
        for (int i = 0; i < f->n_groups; i++) {
            f->order[i] = i;
        }
        check_again(f, text_of(f), seed);
        check_undone(f);
    }
    CHECK_MSG(several > GRAPHS / 3 && most > 2 && spared > 0,
              "%d graphs of several rounds, at most %d; %d probes spared", several, most, spared);
    end();
}

/* ---- how much is done again ---- */

typedef tc_tensor (*grow)(int steps);

/* Running sums in a row. Behind them a value that three read is found to need memory. */
static tc_tensor at_the_end(int steps)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64);
    for (int i = 0; i < steps; i++) {
        x = tc_cumsum(x, 1);
    }
    x = tc_exp(tc_sin(x));
    tc_tensor rows = tc_mul(x, tc_sum(x, TC_AXES(1), true));
    return tc_add(tc_sum(x, TC_AXES(0), true), tc_cumsum(rows, 0));
}

/* The gradient of steps reads what each step made, the last one first. */
static tc_tensor at_the_beginning(int steps)
{
    tc_tensor w = tc_input(ctx, "w", TC_F32, 64, 64), h = tc_input(ctx, "h", TC_F32, 64, 64);
    tc_tensor gradient;
    for (int i = 0; i < steps; i++) {
        h = tc_add(h, tc_tanh(tc_matmul(h, w)));
    }
    REQUIRE(!tc_grad(tc_sum(tc_square(h), TC_ALL, false), &w, 1, &gradient));
    return gradient;
}

/* A value of each step is read by the next ones and by a sum of its own. */
static tc_tensor everywhere(int steps)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64), sum = x;
    for (int i = 0; i < steps; i++) {
        x = tc_exp(tc_sin(tc_sub(x, tc_mean(x, TC_AXES(1), true))));
        sum = tc_add(tc_mul(sum, 0.5), tc_sum(x, TC_AXES(0), true));
    }
    return sum;
}

/* A value that is made at first, and read again at last. */
static tc_tensor around_the_rest(int steps)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64), v = tc_exp(tc_sin(x));
    x = tc_add(x, tc_sum(v, TC_AXES(0), true));
    for (int i = 0; i < steps; i++) {
        x = tc_cumsum(x, 1);
    }
    return tc_add(tc_cumsum(tc_mul(v, 3), 0), tc_mul(tc_cumsum(v, 1), x));
}

typedef struct work {
    int roots, rounds, forced, placed, probed;
} work;

static work work_of(grow make, int steps)
{
    begin();
    if (setjmp(scratch.escape)) {
        CHECK_MSG(false, "%s", scratch.message);
        return (work){0};
    }
    tc_tensor y = make(steps);
    graph g = graph_of(&y, 1);
    tci_table none = tci_table_in(&scratch, sizeof(bool));
    const tci_fusion *f = fuse(&g, &none);
    work w = {f->n_roots, f->round, 0, f->n_placed, f->n_probed};
    for (int i = 0; i < f->nodes.n; i++) {
        w.forced += tci_pnode_of(f, f->nodes.items[i])->forced_in > 0;
    }
    end();
    return w;
}

TEST(what_stands_before_a_forced_value_stays)
{
    for (int steps = 10; steps <= 1000; steps *= 10) {
        work w = work_of(at_the_end, steps);
        CHECK_MSG(w.rounds > 1 && w.forced > 0 && w.roots >= steps, "%d rounds, %d forced",
                  w.rounds, w.forced);
        CHECK_MSG(w.placed <= w.roots + 4 && w.probed <= w.roots + 4,
                  "%d roots: %d placed, %d probed", w.roots, w.placed, w.probed);
    }
}

/* Undone one by one, the values of the beginning would take a square of the steps. */
TEST(what_is_done_again_grows_as_the_graph)
{
    static const grow makes[] = {at_the_beginning, everywhere};
    for (int i = 0; i < 2; i++) {
        work one = work_of(makes[i], 25), eight = work_of(makes[i], 200);
        CHECK_MSG(one.forced >= 20 && eight.forced >= 160, "%d and %d forced", one.forced,
                  eight.forced);
        CHECK_MSG(eight.placed <= 9 * one.placed && eight.placed <= 2 * eight.roots,
                  "%d roots: %d placed, then %d roots: %d", one.roots, one.placed, eight.roots,
                  eight.placed);
    }
}

TEST(what_evaluated_no_forced_value_keeps_its_probe)
{
    work w = work_of(around_the_rest, 100);
    CHECK_MSG(w.forced > 0 && w.placed >= 2 * w.roots - 4, "%d roots, %d forced: %d placed",
              w.roots, w.forced, w.placed);
    CHECK_MSG(w.probed <= w.roots + 4, "%d roots: %d probed", w.roots, w.probed);
}

TEST_MAIN
