/* grad/jvp_vmap_walk.c - forward graph transformation shared by JVP and vmap: visits nodes in
 * topological order and builds for each its tangent or its batched value, also through the bodies
 * of loops (REPEAT).
 *
 * In: the mapped values (tangents, or batched values: `companions`) of some nodes. Out: those of
 * the roots.
 *
 * The mapped value of a loop (REPEAT node) is another REPEAT. For each carry, input and
 * loop-invariant operand it has the original (unless the mapped value replaces it) followed by the
 * mapped value. Its outputs are the mapped original outputs; if mapped values replace originals,
 * every output has one. The batch axis comes after the iteration axis, so that within an iteration
 * it is the first axis. */
#include "jvp_vmap_walk.h"

TCI_FN tci_forward tci_forward_begin(tci_scratch *s, tci_graph *g, const tci_forward_rules *rules,
                                     tci_dim count)
{
    tci_forward w = {.s = s, .g = g, .rules = rules, .count = count};
    w.companions = tci_table_in(s, sizeof(tci_node *));
    w.done = tci_table_in(s, sizeof(bool));
    w.loops = tci_table_in(s, sizeof(tci_forward_loop *));
    return w;
}

TCI_FN tci_node *tci_forward_built(const tci_forward *w, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(w->s, w->g->error ? w->g->error : TC_ERR_INTERNAL, "%s", w->g->message);
    }
    return n;
}

TCI_FN tci_dim *tci_forward_shape(const tci_forward *w, const tci_node *n)
{
    tci_dim *shape = TCI_NEW_ARRAY(w->s, tci_dim, n->rank + 1);
    shape[0] = w->count;
    for (int i = 0; i < n->rank; i++) {
        shape[w->rules->axes + i] = n->shape[i];
    }
    return shape;
}

TCI_FN tci_node *tci_forward_all(tci_forward *w, tci_node *n)
{
    tci_node *companion = *tci_forward_of(w, n);
    return companion ? companion : w->rules->whole(w, n);
}

static bool tci_forward_changes(tci_forward *w, const tci_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (*tci_forward_of(w, n->in[i])) {
            return true;
        }
    }
    return false;
}

TCI_FN tci_node *tci_forward_visit(tci_forward *w, tci_node *root)
{
    tci_node_list list = tci_graph_sort_rest(w->s, &w->done, &root, 1);
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i];
        if (tci_table_add(&w->done, n) && tci_forward_changes(w, n)) {
            tci_stamp stamp = tci_graph_stamp_as(w->g, n);
            *tci_forward_of(w, n) = w->rules->rule(w, n);
            tci_graph_restamp(w->g, stamp);
        }
    }
    return *tci_forward_of(w, root);
}

/* ---- loops ---- */

/* Traverses the body with what has something by now; true: a carry has that had nothing. */
static bool tci_forward_walk_body(tci_forward *w, tci_forward_loop *l)
{
    const tci_repeat *r = &l->r;
    tci_forward within = tci_forward_begin(w->s, w->g, w->rules, w->count);
    bool more = false;
    for (int i = 0; i < r->n_carry + r->n_x + r->n_held; i++) {
        const tci_node *one = r->carry[i];
        if (l->has[i] && !l->bound[i]) {
            l->bound[i] = tci_build_bound(w->g, (tc_dtype)one->dtype, one->rank + w->rules->axes,
                                          tci_forward_shape(w, one));
        }
        *tci_forward_of(&within, one) = l->has[i] ? tci_forward_built(w, l->bound[i]) : NULL;
    }
    for (int i = 0; i < r->n_carry + r->n_y; i++) {
        l->made[i] = tci_forward_visit(&within, r->next[i]);
        bool grows = i < r->n_carry && l->made[i] && !l->has[i];
        more = more || grows;
        if (grows) {
            l->has[i] = true;
        }
    }
    return more;
}

TCI_FN tci_forward_loop *tci_forward_find_loop(tci_forward *w, tci_node *n, bool all)
{
    tci_forward_loop *l = TCI_NEW(w->s, tci_forward_loop);
    l->r = tci_repeat_of(n);
    int n_outside = tci_node_n_outside(n);
    l->has = TCI_NEW_ARRAY(w->s, bool, n_outside + 1);
    l->bound = TCI_NEW_ARRAY(w->s, tci_node *, n_outside + 1);
    l->made = TCI_NEW_ARRAY(w->s, tci_node *, l->r.n_carry + l->r.n_y + 1);
    l->result = TCI_NEW_ARRAY(w->s, int, tci_repeat_n_results(&l->r) + 1);
    for (int i = 0; i < n_outside; i++) {
        l->has[i] = *tci_forward_of(w, n->in[i]) || (all && i < l->r.n_carry);
    }
    while (tci_forward_walk_body(w, l)) {
    }
    return l;
}

/* The first two axes change places, where there is one of examples among them. */
static tci_node *tci_forward_turn(const tci_forward *w, tci_node *n)
{
    int *order = TCI_NEW_ARRAY(w->s, int, n->rank + 2);
    for (int i = 0; i < n->rank; i++) {
        order[i] = i < 2 ? 1 - i : i;
    }
    return w->rules->axes ? tci_forward_built(w, tci_build_permute(w->g, n, n->rank, order)) : n;
}

/* Lists of the REPEAT that is made, in the order of tci_repeat. */
typedef struct tci_forward_lists {
    tci_node **outside[3], **bound[3]; /* of carries, inputs and held values */
    tci_node **next, **y;
    int n[3], n_y;
} tci_forward_lists;

static int tci_forward_put(tci_forward_lists *t, int part, tci_node *outside, tci_node *bound,
                           tci_node *next)
{
    int at = t->n[part]++;
    t->outside[part][at] = outside;
    t->bound[part][at] = bound;
    if (part == 0) {
        t->next[at] = next;
    }
    return at;
}

/* Operand i of the loop, and its companion. Returns the number of the latter, or, if there
 * is none, that of what it replaces, or -1. */
static int tci_forward_operand(tci_forward *w, const tci_forward_loop *l, tci_forward_lists *t,
                               int i, int *stops)
{
    const tci_repeat *r = &l->r;
    int part = i < r->n_carry ? 0 : i < r->n_carry + r->n_x ? 1 : 2;
    tci_node *next = part == 0 ? r->next[i] : NULL;
    int at = -1;
    if (!l->has[i] || !w->rules->replaces) {
        at = tci_forward_put(t, part, r->init[i], r->carry[i], next);
        *stops = i == r->stops ? at : *stops;
    }
    if (!l->has[i]) {
        return w->rules->replaces ? at : -1;
    }
    tci_node *outside = tci_forward_all(w, r->init[i]);
    outside = part == 1 ? tci_forward_turn(w, outside) : outside;
    next = part > 0 ? NULL : l->made[i] ? l->made[i] : w->rules->whole(w, next);
    return tci_forward_put(t, part, outside, l->bound[i], next);
}

TCI_FN tci_node *tci_forward_repeat(tci_forward *w, const tci_node *n, tci_forward_loop *l)
{
    const tci_repeat *r = &l->r;
    int n_outside = tci_node_n_outside(n), n_companions = 0, stops = -1;
    tci_forward_lists t = {.next = TCI_NEW_ARRAY(w->s, tci_node *, 2 * n_outside + 2),
                           .y = TCI_NEW_ARRAY(w->s, tci_node *, r->n_y + 1)};
    for (int part = 0; part < 3; part++) {
        t.outside[part] = TCI_NEW_ARRAY(w->s, tci_node *, 2 * n_outside + 2);
        t.bound[part] = TCI_NEW_ARRAY(w->s, tci_node *, 2 * n_outside + 2);
    }
    for (int i = 0; i < n_outside; i++) {
        int at = tci_forward_operand(w, l, &t, i, &stops);
        if (i < r->n_carry) {
            l->result[i] = at;
            n_companions += at >= 0;
        }
    }
    if (l->go_init) {
        stops = tci_forward_put(&t, 0, l->go_init, l->go_bound, l->go_next);
    }
    for (int i = 0; i < r->n_y; i++) {
        tci_node *made = l->made[r->n_carry + i];
        bool stands = made || w->rules->replaces;
        l->result[r->n_carry + i] = stands ? t.n[0] + t.n_y : -1;
        t.y[t.n_y] = made ? made : r->y[i];
        t.n_y += stands;
    }
    for (int i = 0; i < r->n_carry; i++) { /* rows */
        l->result[r->n_carry + r->n_y + i] = l->result[i] < 0 ? -1 : t.n[0] + t.n_y + l->result[i];
    }
    if (n_companions + t.n_y == 0) {
        return NULL;
    }
    const tci_repeat made = {.n_carry = t.n[0],
                             .n_x = t.n[1],
                             .n_held = t.n[2],
                             .n_y = t.n_y,
                             .length = r->length,
                             .reverse = r->reverse,
                             .stops = stops,
                             .init = t.outside[0],
                             .xs = t.outside[1],
                             .held = t.outside[2],
                             .carry = t.bound[0],
                             .x = t.bound[1],
                             .inner = t.bound[2],
                             .next = t.next,
                             .y = t.y};
    *(tci_forward_loop **)tci_table_at(&w->loops, n) = l;
    return tci_forward_built(w, tci_build_repeat(w->s, w->g, &made));
}

TCI_FN tci_node *tci_forward_result(tci_forward *w, const tci_node *n)
{
    const tci_forward_loop *l = *(tci_forward_loop **)tci_table_at(&w->loops, n->in[0]);
    const int which = (int)n->attr[0], n_carry = l->r.n_carry, number = l->result[which];
    bool is_y = which >= n_carry && which < n_carry + l->r.n_y;
    bool has = is_y ? l->made[which] != NULL : l->has[which % (n_carry + l->r.n_y)];
    if (number < 0) {
        return NULL;
    }
    tci_node *companion = *tci_forward_of(w, n->in[0]);
    companion = tci_forward_built(w, tci_build_result(w->g, companion, number));
    return !has              ? w->rules->whole(w, companion)
           : which < n_carry ? companion
                             : tci_forward_turn(w, companion);
}
