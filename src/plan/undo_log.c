/* plan/undo_log.c - undo log of the fusion pass: records the changes that placing each root
 * (materialized value) made, so that they can be rolled back.
 *
 * In: roots as they are placed, one after the other. Out: the state before any of them.
 *
 * That a value must be materialized may be discovered only while a later root is placed; then it
 * becomes a root itself, with a number before that one's. Roots placed before it stay: their state
 * follows from the graph and from the values materialized so far, and nothing later is part of
 * that. Roots placed after it are undone, the last one first.
 *
 * Invariants (tests/unit/test_plan.c):
 *  - roots are in the order of their nodes, each with a mark of the same number: how many groups,
 *    refusals and node changes there were before it was placed
 *  - a root is put into one group. If that existed, the mark has its old state. Lists of a group
 *    only grow: entries past their old end are ignored. `outer` is never written to; if it was
 *    another one, rows were transposed (plan/fusion_groups.c), and every axis of the members was
 *    outer
 *  - a node's placement fields (home, n_homes, group, operand_of) are changed only after their old
 *    values were logged
 *  - visit stamps increase monotonically, so no traversal sees a stale one
 *  - materialized values stay so, and an undone root keeps what its probe found
 *    (plan/trial_lowering.c). So the state undone to a point is that of a first round with the same
 *    values materialized at that point; undone rounds all have one mode (tci_store_mode) */
#include "fusion_groups.h"

TCI_FN void tci_undo_begin(tci_fusion *f)
{
    tci_undo *t = &f->trail;
    tci_undo_mark mark = {f->n_groups, f->n_refusals, t->n_facts, -1, {0}};
    TCI_PUSH(f->s, t->marks, t->n_marks, t->cap_marks, mark);
}

TCI_FN void tci_undo_group(tci_fusion *f, int group)
{
    tci_undo_mark *mark = &f->trail.marks[f->trail.n_marks - 1];
    if (mark->group < 0 && group < mark->n_groups) {
        mark->group = group;
        mark->was = f->groups[group];
    }
}

TCI_FN void tci_undo_node(tci_fusion *f, tci_pnode *p)
{
    tci_undo *t = &f->trail;
    tci_undo_fact was = {p, p->home, p->n_homes, p->group, p->operand_of};
    TCI_PUSH(f->s, t->facts, t->n_facts, t->cap_facts, was);
}

static void tci_undo_group_placement(tci_fusion *f, const tci_undo_mark *mark)
{
    const tci_group *was = &mark->was;
    bool turned = f->groups[mark->group].outer != was->outer;
    for (int m = 0; m < was->n_roots && turned; m++) {
        const tci_root *q = &f->roots[was->roots[m]];
        for (int a = 0; a < q->n_domain; a++) {
            q->outer_of[a] = a;
        }
    }
    f->groups[mark->group] = *was;
}

/* The groups that the last root made its group depend on know of it last. */
static void tci_undo_undo_users(tci_fusion *f, const tci_root *r, const tci_undo_mark *mark)
{
    const tci_group *g = &f->groups[r->group];
    for (int i = mark->group >= 0 ? mark->was.n_deps : 0; i < g->n_deps; i++) {
        f->groups[g->deps[i]].n_users--;
    }
}

static void tci_undo_undo_root(tci_fusion *f)
{
    tci_undo *t = &f->trail;
    const tci_undo_mark *mark = &t->marks[--t->n_marks];
    const tci_root *r = &f->roots[--f->n_roots];
    tci_pnode *p = tci_pnode_of(f, r->node);
    tci_undo_undo_users(f, r, mark);
    p->root = -1;
    p->kept = p->kept ? p->kept : TCI_NEW(f->s, tci_root);
    *p->kept = *r;
    p->kept->group = -1;
    while (t->n_facts > mark->n_facts) {
        const tci_undo_fact *was = &t->facts[--t->n_facts];
        was->of->home = was->home;
        was->of->n_homes = was->n_homes;
        was->of->group = was->group;
        was->of->operand_of = was->operand_of;
    }
    if (mark->group >= 0) {
        tci_undo_group_placement(f, mark);
    }
    f->n_groups = mark->n_groups;
    f->n_refusals = mark->n_refusals;
}

TCI_FN void tci_undo_undo(tci_fusion *f, int place)
{
    TCI_ASSERT(f->s, f->trail.n_marks == f->n_roots);
    while (f->n_roots > 0 && tci_pnode_of(f, f->roots[f->n_roots - 1].node)->place >= place) {
        tci_undo_undo_root(f);
    }
}
