/* plan/incremental_lowering.c - incremental lowering of trial plans: a fusion group that is
 * identical to a group of the plan it is compared with takes over that group's lowered kernel.
 *
 * In: a fusion, one of its groups, and the fusion's `like` with the kernels of its groups. Out: the
 * kernel of an identical group with this plan's buffers, or nothing. Design: trial plans
 * (plan/fission.c) materialize one more value, so nearly all of their groups are identical to
 * groups of the plan that they are compared with, and nodes are the same pointers in both.
 *
 * A kernel follows from the graph, the machine and what is compared here: the roots with the nodes
 * that each evaluates and reads, which of these are in the group, and the outer and inner axes. */
#include "fusion_groups.h"

#include <string.h>

/* The position in `f` of the root of n; NULL: n has none. */
static const tci_root *tci_reuse_root(const tci_fusion *f, const tci_node *n)
{
    const tci_pnode *p = tci_table_find(&f->known, n);
    return p && p->root >= 0 ? &f->roots[p->root] : NULL;
}

/* True if both fusions have n in memory of its own, or in a group that is `a` and `b`, or neither
 * has a root for it. */
static bool tci_reuse_same_place(const tci_fusion *f, int a, const tci_fusion *like, int b,
                                 const tci_node *n)
{
    const tci_root *now = tci_reuse_root(f, n), *was = tci_reuse_root(like, n);
    return !now == !was && (!now || ((now->group == a) == (was->group == b) &&
                                     (now->buffer >= 0) == (was->buffer >= 0)));
}

static bool tci_reuse_same_root(const tci_fusion *f, const tci_root *now, const tci_fusion *like,
                                const tci_root *was)
{
    bool same = now->node == was->node && now->n_reads == was->n_reads &&
                now->n_leaves == was->n_leaves && now->n_inlined == was->n_inlined &&
                now->n_outputs == was->n_outputs && now->n_listed == was->n_listed &&
                (now->buffer >= 0) == (was->buffer >= 0);
    for (int i = 0; i < now->n_domain && same; i++) {
        same = now->outer_of[i] == was->outer_of[i];
    }
    for (int i = 0; i < now->n_inlined && same; i++) {
        same = now->inlined[i] == was->inlined[i] &&
               tci_reuse_same_place(f, now->group, like, was->group, now->inlined[i]);
    }
    for (int i = 0; i < now->n_reads && same; i++) {
        same = now->reads[i].node == was->reads[i].node &&
               tci_reuse_same_place(f, now->group, like, was->group, now->reads[i].node);
    }
    for (int i = 0; i < now->n_leaves && same; i++) {
        same = now->leaves[i] == was->leaves[i] &&
               tci_reuse_same_place(f, now->group, like, was->group, now->leaves[i]);
    }
    return same;
}

static bool tci_reuse_same_axes(const tci_group *now, const tci_group *was)
{
    return now->n_outer == was->n_outer && now->keeps == was->keeps &&
           now->on_unit == was->on_unit &&
           !memcmp(now->outer, was->outer, sizeof(*now->outer) * (size_t)now->n_outer) &&
           (!now->keeps ||
            (now->n_inner == was->n_inner &&
             !memcmp(now->inner, was->inner, sizeof(*now->inner) * (size_t)now->n_inner)));
}

/* Of groups that keep rows: which inner axis each axis of a root is. */
static bool tci_reuse_same_rows(const tci_root *now, const tci_root *was)
{
    bool same = true;
    for (int i = 0; i < now->n_domain && same; i++) {
        same = now->outer_of[i] >= 0 || now->domain[i] == 1 || now->inner_of[i] == was->inner_of[i];
    }
    return same;
}

/* The group of `like` that is group g of f; -1: there is none. */
static int tci_reuse_group(const tci_fusion *f, int g, const tci_fusion *like)
{
    const tci_group *now = &f->groups[g];
    const tci_root *first = tci_reuse_root(like, f->roots[now->roots[0]].node);
    const int b = first ? first->group : -1;
    const tci_group *was = b >= 0 ? &like->groups[b] : NULL;
    bool same = was && was->n_roots == now->n_roots && tci_reuse_same_axes(now, was);
    for (int m = 0; m < now->n_roots && same; m++) {
        const tci_root *r = &f->roots[now->roots[m]], *q = &like->roots[was->roots[m]];
        same = tci_reuse_same_root(f, r, like, q) && (!now->keeps || tci_reuse_same_rows(r, q));
    }
    return same ? b : -1;
}

/* An input has the same number in all plans; of a root: which of its buffers it is. */
static tci_reuse_operand tci_reuse_name(const tci_plan *p, int buffer)
{
    const tci_root *r = tci_reuse_root(p->fusion, p->buffers[buffer].node);
    if (p->buffers[buffer].kind == TCI_BUF_INPUT || !r) {
        return (tci_reuse_operand){NULL, buffer};
    }
    int which = r->n_outputs - 1;
    while (which >= 0 && r->outputs[which] != buffer) {
        which--;
    }
    return (tci_reuse_operand){r->node, which};
}

TCI_FN void tci_reuse_note(tci_scratch *s, const tci_plan *p, const tci_lowered *low,
                           tci_plan_made *made)
{
    const int n = low->kernel->n_operands;
    tci_reuse_operand *operands = TCI_NEW_ARRAY(s, tci_reuse_operand, n + 1);
    for (int i = 0; i < n; i++) {
        operands[i] = tci_reuse_name(p, low->operand_buffers[i]);
    }
    made->low = TCI_NEW(s, tci_lowered);
    *made->low = *low;
    made->operands = operands;
}

TCI_FN const tci_plan_made *tci_reuse_find(tci_scratch *s, const tci_fusion *f, int group,
                                           tci_lowered *low)
{
    const tci_fusion *like = f->like;
    const int b = like && like->made ? tci_reuse_group(f, group, like) : -1;
    const tci_plan_made *made = b >= 0 && like->made[b].low ? &like->made[b] : NULL;
    if (!made) {
        return NULL;
    }
    *low = *made->low;
    const int n = low->kernel->n_operands;
    low->operand_buffers = TCI_NEW_ARRAY(s, int32_t, n + 1);
    for (int i = 0; i < n; i++) {
        const tci_reuse_operand *o = &made->operands[i];
        const tci_root *r = o->node ? tci_reuse_root(f, o->node) : NULL;
        low->operand_buffers[i] = !r ? o->which : o->which < 0 ? r->buffer : r->outputs[o->which];
    }
    return made;
}
