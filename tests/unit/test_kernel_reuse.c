/* tests/unit/test_kernel_reuse.c - plans that take kernels of earlier groupings of the same graph:
 * each is the one that lowering its group anew gives, and most are taken. */
#include "inside.h"

#include <string.h>

#include "tc_test.h"

#include "../../bench/blocks.h"

static const tci_machine processor = {.vector_bytes = 64, .thread_scratch = true};
static const tci_machine device = {.vector_bytes = 16, .block_threads = 1024, .matrix_units = 132};

typedef struct tally {
    int groups, taken, texts; /* of plans; taken from another one; that were compared */
} tally;

static const char *text_of(tci_scratch *s, const tci_kernel *k)
{
    tci_str text = {.s = s};
    tci_kernel_print(&text, k);
    return tci_str_text(&text);
}

/* Compares each kernel of a plan with what its group is lowered to now. */
static void check_plan(tci_scratch *s, tci_plan *p, tci_machine machine, const char *name, tally *t)
{
    const tci_fusion *f = p->fusion;
    for (int g = 0; g < f->n_groups; g++) {
        if (f->made[g].low) {
            tci_lowered low = tci_plan_lower(s, f, &f->groups[g], p, machine);
            CHECK_MSG(!strcmp(text_of(s, low.kernel), f->made[g].text), "%s: group %d is not\n%s",
                      name, g, f->made[g].text);
            for (int r = 0; r < f->groups[g].n_roots; r++) {
                p->red_of[f->groups[g].roots[r]] = -1;
            }
            t->texts++;
        }
    }
    t->groups += f->n_groups;
    t->taken += f->n_groups - f->n_lowered;
}

/* The block of a seed with the gradients of its inputs. */
static void check_block(int seed, tci_machine machine, tally *t)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    block b = {0};
    REQUIRE(tc_ctx_make(&b.ctx, &o) == TC_OK);
    tc_tensor y[MOST_INPUTS + 1], loss;
    tci_node *roots[MOST_INPUTS + 1];
    y[0] = draw_block(&b, seed);
    loss = tc_mean(tc_square(y[0]), TC_ALL, false);
    REQUIRE(tc_grad(loss, b.inputs, b.n_inputs, y + 1) == TC_OK);
    for (int i = 0; i <= b.n_inputs; i++) {
        roots[i] = tci_handle_node(y[i]);
    }
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s: %s", b.name, s.message);
    } else {
        const int n = b.n_inputs + 1;
        tci_request *r = tci_request_make(&s, NULL, 0, roots, n, &tci_ctx_of(b.ctx)->options, NULL,
                                          NULL);
        tci_request_copy copy = tci_request_copy_graph(&s, r, NULL);
        tci_node **now = tci_rewrite(&s, copy.graph, copy.roots, n);
        tci_table facts = tci_table_in(&s, sizeof(tci_association));
        copy.graph->facts = &facts; /* which the plan's own would not outlive */
        tci_plan *p = tci_plan_make(&s, copy.graph, copy.inputs, r->n_inputs, copy.literals,
                                    r->n_literals, now, n, machine);
        tci_plan_verify(&s, p);
        check_plan(&s, p, machine, b.name, t);
    }
    tci_scratch_free(&s);
    tc_ctx_free(b.ctx);
}

TEST(a_kernel_that_was_taken_is_what_lowering_gives)
{
    tally t = {0, 0, 0};
    for (int seed = 1; seed <= 12; seed++) {
        check_block(seed, processor, &t);
    }
    CHECK_MSG(t.texts > 200 && 2 * t.taken > t.groups, "%d of %d groups, %d texts", t.taken,
              t.groups, t.texts);
}

TEST(and_on_a_machine_of_blocks)
{
    tally t = {0, 0, 0};
    for (int seed = 13; seed <= 18; seed++) {
        check_block(seed, device, &t);
    }
    CHECK_MSG(t.texts > 100 && t.taken > 0, "%d of %d groups, %d texts", t.taken, t.groups,
              t.texts);
}

TEST_MAIN
