/* interp/loop_in_kernel.c - interprets a kernel that contains a whole program loop: runs the
 * kernels of the loop body (its members) in order, once per iteration.
 *
 * In: a loop whose members are prepared. Out: the same bits as running the members one after
 * another. Memory is as in emit/grouped_launch.c: rows, and local scalars, here in the
 * workspace. */
#include <string.h>

#include "linear_ir.h"

static int64_t tci_interp_loop_cell_bytes(const tci_kcell *c)
{
    return c->n * tci_dtype_get((tc_dtype)c->dtype)->bytes;
}

static int64_t tci_interp_loop_aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

TCI_FN void tci_interp_prepare_loop(tci_interp *p, const tci_kernel *k)
{
    tci_interp_rounds *x = TCI_NEW(&p->s, tci_interp_rounds);
    tci_kloop *of = &x->of;
    int64_t at = 0;
    int most = 0;
    *of = *k->loop;
    of->places = tci_scratch_copy(&p->s, of->places, sizeof(*of->places) * (size_t)of->n_places);
    of->cells = tci_scratch_copy(&p->s, of->cells, sizeof(*of->cells) * (size_t)of->n_cells);
    of->carries = tci_scratch_copy(&p->s, of->carries,
                                   sizeof(*of->carries) * (size_t)of->n_carries);
    x->cell_at = TCI_NEW_ARRAY(&p->s, int64_t, of->n_cells + 1);
    for (int i = 0; i < of->n_cells; i++) {
        x->cell_at[i] = at;
        at += tci_interp_loop_aligned(tci_interp_loop_cell_bytes(&of->cells[i]));
    }
    for (int i = 0; i < k->n_members; i++) {
        most = TCI_MAX(most, k->members[i]->n_operands);
    }
    x->slots_at = at;
    x->members_at = at + tci_interp_loop_aligned((int64_t)sizeof(void *) * most);
    p->workspace_bytes = x->members_at + tci_interp_loop_aligned(p->workspace_bytes);
    p->loop = x;
}

typedef struct tci_interp_kloop {
    const tci_interp_rounds *x;
    char *workspace;
    void *const *bufs;
    const int64_t *lits;
    int64_t *fault, begin;
    tci_interp_run_fn run;
} tci_interp_kloop;

static char *tci_interp_loop_at(const tci_interp_kloop *e, const tci_kplace *p, int64_t round)
{
    int64_t steps = p->step == TCI_STEP_WALK   ? round
                    : p->step == TCI_STEP_TURN ? round & 1
                                               : (round - e->begin) & 1;
    char *base = p->base < 0 ? e->workspace + e->x->cell_at[~p->base] : e->bufs[p->base];
    return base + tci_dim_known(p->offset) + steps * tci_dim_known(p->by);
}

static char *tci_interp_loop_cell(const tci_interp_kloop *e, int cell)
{
    return e->workspace + e->x->cell_at[cell];
}

/* The carries as round `begin` reads them. */
static void tci_interp_loop_load(const tci_interp_kloop *e)
{
    for (int i = 0; i < e->x->of.n_carries; i++) {
        const tci_kcarry *c = &e->x->of.carries[i];
        if (c->cell >= 0) {
            memcpy(tci_interp_loop_cell(e, c->cell), tci_interp_loop_at(e, &c->from, e->begin),
                   (size_t)tci_dim_known(c->bytes));
        }
    }
}

static void tci_interp_loop_turn(const tci_interp_kloop *e, int64_t round)
{
    for (int i = 0; i < e->x->of.n_carries; i++) {
        const tci_kcarry *c = &e->x->of.carries[i];
        size_t bytes = (size_t)tci_dim_known(c->bytes);
        if (c->cell >= 0 && c->to.step == TCI_STEP_WALK) {
            memcpy(tci_interp_loop_at(e, &c->to, round), tci_interp_loop_cell(e, c->next), bytes);
        }
        if (c->cell >= 0) {
            memcpy(tci_interp_loop_cell(e, c->cell), tci_interp_loop_cell(e, c->next), bytes);
        }
    }
}

/* Round `end` is not done. */
static void tci_interp_loop_store(const tci_interp_kloop *e, int64_t end)
{
    for (int i = 0; i < e->x->of.n_carries; i++) {
        const tci_kcarry *c = &e->x->of.carries[i];
        char *first = tci_interp_loop_at(e, &c->from, e->begin),
             *last = tci_interp_loop_at(e, &c->from, end);
        size_t bytes = (size_t)tci_dim_known(c->bytes);
        if (c->cell >= 0 && c->from.step != TCI_STEP_WALK) {
            memcpy(c->from.step == TCI_STEP_ANEW ? first : last, tci_interp_loop_cell(e, c->cell),
                   bytes);
        } else if (c->from.step == TCI_STEP_ANEW && first != last) {
            memcpy(first, last, bytes);
        }
    }
}

static void tci_interp_loop_member(const tci_interp_kloop *e, const tci_interp_member *m,
                                   int64_t round)
{
    void **slots = (void **)(void *)(e->workspace + e->x->slots_at);
    for (int o = m->operand; o < m[1].operand; o++) {
        slots[o - m->operand] = tci_interp_loop_at(e, &e->x->of.places[o], round);
    }
    e->run(m->interp, e->workspace + e->x->members_at, slots, e->lits + m->literal, e->fault, 0,
           m->tasks);
}

TCI_FN void tci_interp_run_loop(const tci_interp *p, tci_interp_run_fn run, char *workspace,
                                void *const *bufs, const int64_t *lits, int64_t *fault,
                                int64_t begin, int64_t end)
{
    const tci_kloop *of = &p->loop->of;
    const tci_interp_kloop e = {p->loop, workspace, bufs, lits, fault, begin, run};
    const char *go = of->stops >= 0 ? tci_interp_loop_cell(&e, of->carries[of->stops].cell) : NULL;
    int64_t t = begin;
    for (int i = 0; i < of->n_enter && begin == 0; i++) {
        tci_interp_loop_member(&e, &p->members[i], 0);
    }
    tci_interp_loop_load(&e);
    for (; t < end && (!go || *go); t++) {
        for (int i = of->n_enter; i < p->n_members; i++) {
            tci_interp_loop_member(&e, &p->members[i], t);
        }
        tci_interp_loop_turn(&e, t);
    }
    tci_interp_loop_store(&e, t);
}
