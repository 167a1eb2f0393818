/* plan/layout.c - which values lie in memory with their channels last.
 *
 * In: the graph, on a machine whose matrix unit reads boxes of images. Out: the same values, of
 * which those that a contraction reads through windows, as a convolution its image, are read
 * through PERMUTE(back) of a forced PERMUTE(channels last): everything reads through index maps, so
 * the latter is the only form in memory and no kernel turns one into the other. What such a value
 * is made of, element by element, comes in its order: a contraction has the channels as the last
 * axis of its result, a reduction of windows as the last that it keeps, and the image behind those
 * windows lies as its result does.
 *
 * The one idea: the want goes from users to what they are made of, against the order of the graph,
 * once. A value of which nobody wants anything stays as it was written. So does all of the graph
 * where a wanted contraction is also summed over its places, as by norms that learn: such sums go
 * along rows, and half a network in each order would be turned all the time. */
#include "../graph/build.h"
#include "group.h"

enum { TCI_LAYOUT_STEPS = 10 /* ops from a contraction to what a CAT takes */ };

/* What is wanted of a value: that axis to lie fastest, where it is computed; and in memory. */
typedef struct tci_layout_want {
    int32_t axis;
    bool set, stored;
    bool summed; /* element by element made to what is reduced, but for windows, in one kernel */
} tci_layout_want;

typedef struct tci_layout {
    const tci_algo *a;
    tci_scratch *s;
    tci_table wants, roots; /* roots: a set; what users get lies as they see it */
} tci_layout;

static tci_layout_want tci_layout_of(const tci_layout *l, const tci_node *n)
{
    const tci_layout_want *w = (const tci_layout_want *)tci_table_find(&l->wants, n);
    return w ? *w : (tci_layout_want){0, false, false, false};
}

/* The first want of a value is the one that counts. */
static void tci_layout_ask(tci_layout *l, const tci_node *n, int axis, bool stored)
{
    tci_layout_want *w = (tci_layout_want *)tci_table_at(&l->wants, n);
    bool moves = axis >= 0 && axis < n->rank - 1;
    if (!w->set && moves) {
        w->axis = axis;
        w->set = true;
    }
    w->stored = w->stored || (stored && w->set && !tci_plan_is_leaf(n) &&
                              !tci_table_has(&l->roots, n));
}

/* ---- who wants what ---- */

/* The channels of windows, as an axis of the value behind them: the last whole one before those
 * over which the windows go. -1: they are none that a unit reads together. */
static int tci_layout_channels(const tci_node *x, const tci_node *source)
{
    int first = tci_dim_known(x->attr[0]);
    for (int i = 4; i < x->n_attr; i += 4) {
        first = TCI_MIN(first, tci_dim_known(x->attr[i]));
    }
    for (int a = first - 1; a > 0; a--) {
        int axis = tci_plan_image_axis(x, source, a);
        if (axis >= 0 && tci_dim_lt(1, x->shape[a])) {
            return tci_dim_known(x->shape[a]) % TCI_MATRIX_ALIGN == 0 ? axis : -1;
        }
    }
    return -1;
}

/* The image behind operand x of windows is wanted with channels last. */
static void tci_layout_ask_image(tci_layout *l, tci_node *x)
{
    while (x->op == TCI_OP_CAST) {
        x = x->in[0];
    }
    tci_node *source = tci_plan_image(l->a, x);
    if (x->op == TCI_OP_WINDOW && source && source != x) {
        tci_layout_ask(l, source, tci_layout_channels(x, source), true);
    }
}

/* Marks what n reduces, or what is made to that. */
static void tci_layout_pass_sums(tci_layout *l, const tci_node *n, bool summed)
{
    bool reduces = tci_op_is_reduce(n->op) && n->in[0]->op != TCI_OP_WINDOW;
    bool passes = summed && (tci_op_is(n->op, TCI_IS_POINTWISE) || n->op == TCI_OP_RESHAPE);
    for (int i = 0; i < n->n_in && (reduces || passes); i++) {
        ((tci_layout_want *)tci_table_at(&l->wants, n->in[i]))->summed = true;
    }
}

/* Is it made of a contraction, element by element, in so many steps? As a part of a larger value it
 * is what a unit leaves then, rather than sums that the whole finishes. */
static bool tci_layout_is_of_contract(const tci_node *n, int steps)
{
    bool found = n->op == TCI_OP_CONTRACT;
    for (int i = 0; i < n->n_in && steps > 0 && tci_op_is(n->op, TCI_IS_POINTWISE); i++) {
        found = found || tci_layout_is_of_contract(n->in[i], steps - 1);
    }
    return found;
}

/* What n wants of its operands, where `axis` of its own is to lie fastest. */
static void tci_layout_pass_on(tci_layout *l, tci_node *n, int axis)
{
    if (n->op == TCI_OP_RESHAPE) {
        tci_layout_ask(l, n->in[0], tci_plan_image_reshaped(n, axis), false);
    } else if (tci_op_is_reduce(n->op)) {
        tci_layout_ask_image(l, n->in[0]);
    }
    bool parts = n->op == TCI_OP_CAT;
    for (int i = 0; i < n->n_in && (parts || tci_op_is(n->op, TCI_IS_POINTWISE)); i++) {
        tci_layout_ask(l, n->in[i], axis,
                       parts && tci_layout_is_of_contract(n->in[i], TCI_LAYOUT_STEPS));
    }
}

/* ---- the graph with it ---- */

/* The order of `rank` axes in which `axis` comes where axis `to` was, those between one earlier. */
static int64_t *tci_layout_order(const tci_layout *l, int rank, int axis, int to)
{
    int64_t *perm = TCI_NEW_ARRAY(l->s, int64_t, rank);
    for (int i = 0; i < rank; i++) {
        perm[i] = i == to ? axis : i >= axis && i < to ? i + 1 : i;
    }
    return perm;
}

/* Of x, whose axes are those of a value in the order `perm`: the value. */
static tci_node *tci_layout_back(const tci_layout *l, tci_node *x, const int64_t *perm)
{
    int64_t *back = TCI_NEW_ARRAY(l->s, int64_t, x->rank);
    for (int i = 0; i < x->rank; i++) {
        back[perm[i]] = i;
    }
    return tci_algo_permute(l->a, x, back);
}

/* Operand x in memory with the axis of that label last; its labels follow. */
static tci_node *tci_layout_operand(const tci_layout *l, tci_node *x, int64_t *labels,
                                    int64_t label)
{
    int axis = 0;
    while (axis < x->rank - 1 && labels[axis] != label) {
        axis++;
    }
    const int64_t *perm = tci_layout_order(l, x->rank, axis, x->rank - 1);
    const int64_t *old = tci_scratch_copy(l->s, labels, sizeof(int64_t) * (size_t)x->rank);
    for (int i = 0; i < x->rank; i++) {
        labels[i] = old[perm[i]];
    }
    x = tci_algo_permute(l->a, x, perm);
    tci_algo_force(l->a, x);
    return x;
}

/* Are sums so short, over several axes, that threads make them in vectors of filters
 * (loop/window.c)? */
static bool tci_layout_has_few(const tci_node *n)
{
    int64_t products = 1, axes = 0;
    const int64_t *out = n->attr + n->n_attr - n->rank;
    for (int i = 0; i < n->in[0]->rank && products <= TCI_WINDOW_FEW; i++) {
        bool summed = tci_build_label(out, n->rank, n->attr[3 + i]) < 0;
        axes += summed && tci_dim_lt(1, n->in[0]->shape[i]);
        products *= summed ? tci_dim_hint(n->in[0]->shape[i]) : 1;
    }
    return products <= TCI_WINDOW_FEW && axes > 1;
}

/* Contraction n with its result's axes in that order. Where both operands have the last one, as in
 * a convolution of each channel by itself, or sums are short, what is no image has it last, too. */
static tci_node *tci_layout_contract(const tci_layout *l, tci_node *n, const int64_t *perm)
{
    int64_t *attr = tci_scratch_copy(l->s, n->attr, sizeof(int64_t) * (size_t)n->n_attr);
    int64_t *labels[2] = {attr + 3, attr + 3 + attr[0]}, *out = attr + n->n_attr - n->rank;
    tci_dim *shape = TCI_NEW_ARRAY(l->s, tci_dim, n->rank);
    tci_node *in[2] = {n->in[0], n->in[1]};
    int found = 0;
    for (int i = 0; i < n->rank; i++) {
        out[i] = n->attr[n->n_attr - n->rank + perm[i]];
        shape[i] = n->shape[perm[i]];
    }
    for (int i = 0; i < attr[0] + attr[1]; i++) {
        found += labels[0][i] == out[n->rank - 1];
    }
    for (int i = 0; i < 2 && (found == 2 || tci_layout_has_few(n)); i++) {
        if (in[i]->op != TCI_OP_WINDOW &&
            tci_build_label(labels[i], in[i]->rank, out[n->rank - 1]) >= 0) {
            in[i] = tci_layout_operand(l, in[i], labels[i], out[n->rank - 1]);
        }
    }
    return tci_graph_node(l->a->g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, shape, 2, in,
                          n->n_attr, attr);
}

/* A reduction of windows, whose elements are the last axes of its operand, likewise. */
static tci_node *tci_layout_reduce(const tci_layout *l, tci_node *n, const int64_t *perm)
{
    tci_node *x = n->in[0];
    int64_t *order = TCI_NEW_ARRAY(l->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(l->s, tci_dim, n->rank);
    for (int i = 0; i < x->rank; i++) {
        order[i] = i < n->rank ? perm[i] : i;
    }
    for (int i = 0; i < n->rank; i++) {
        shape[i] = n->shape[perm[i]];
    }
    x = tci_algo_permute(l->a, x, order);
    return tci_graph_node(l->a->g, n->op, (tc_dtype)n->dtype, n->rank, shape, 1, &x, n->n_attr,
                          n->attr);
}

static bool tci_layout_reduces_last(const tci_node *n)
{
    bool last = tci_op_is_reduce(n->op) && !tci_op_is(n->op, TCI_IS_ARG) &&
                n->in[0]->op == TCI_OP_WINDOW;
    for (int i = 0; i < n->n_attr && last; i++) {
        last = tci_dim_known(n->attr[i]) >= n->rank;
    }
    return last;
}

/* n as it is wanted. */
static tci_node *tci_layout_node(const tci_layout *l, tci_node *n, tci_layout_want want)
{
    if (!want.set) {
        return n;
    }
    const int64_t *perm = tci_layout_order(l, n->rank, want.axis, n->rank - 1);
    if (n->op == TCI_OP_CONTRACT) {
        n = tci_layout_back(l, tci_layout_contract(l, n, perm), perm);
    } else if (tci_layout_reduces_last(n)) {
        n = tci_layout_back(l, tci_layout_reduce(l, n, perm), perm);
    }
    if (want.stored) {
        tci_node *lies = tci_algo_permute(l->a, n, perm);
        tci_algo_force(l->a, lies);
        tci_table_add(l->a->images, lies);
        n = tci_layout_back(l, lies, perm);
    }
    return n;
}

/* What is wanted of each; false: nothing is to change. */
static bool tci_layout_decide(tci_layout *l, tci_node_list list)
{
    bool any = false;
    for (int i = list.n - 1; i >= 0; i--) {
        tci_node *n = list.items[i];
        tci_layout_want want = tci_layout_of(l, n);
        if (n->op == TCI_OP_CONTRACT && want.set && want.summed) {
            return false;
        }
        for (int j = 0; j < 2 && n->op == TCI_OP_CONTRACT; j++) {
            tci_layout_ask_image(l, n->in[j]);
        }
        if (want.set) {
            tci_layout_pass_on(l, n, want.axis);
        }
        tci_layout_pass_sums(l, n, want.summed && !want.stored);
        any = any || want.stored;
    }
    return any;
}

TCI_FN void tci_plan_layout(const tci_algo *a, tci_node **roots, int n_roots)
{
    tci_layout l = {a, a->s, tci_table_in(a->s, sizeof(tci_layout_want)),
                    tci_table_in(a->s, sizeof(bool))};
    if (!tci_plan_has_image_unit(a->machine)) {
        return;
    }
    tci_node_list list = tci_graph_sort(a->s, roots, n_roots);
    tci_table now = tci_table_in(a->s, sizeof(tci_node *));
    for (int i = 0; i < n_roots; i++) {
        tci_table_add(&l.roots, roots[i]);
    }
    if (!tci_layout_decide(&l, list)) {
        return;
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], *over = tci_graph_rebuild(a->s, a->g, n, &now);
        if (tci_table_has(a->forced, n)) {
            tci_algo_force(a, over);
        }
        over->site = over->site.file ? over->site : n->site;
        tci_table_put(&now, n, tci_layout_node(&l, over, tci_layout_of(&l, n)));
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}
