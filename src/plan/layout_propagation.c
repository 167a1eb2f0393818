/* plan/layout_propagation.c - decides which values are stored channels-last: layout propagation
 * (NCHW to NHWC).
 *
 * In: the graph, on a machine whose tensor cores load image tiles by TMA (implicit GEMM). Out: the
 * same values; those that a contraction reads through windows (the input of a convolution; the
 * output gradient, of an input gradient) are stored with channels last, and the values that they
 * are computed from or that are computed from them, transitively, have that order too. Each is a
 * node with permuted axes, and a PERMUTE(back) of it replaces the old node. All readers use index
 * maps, so only the new form is in memory, no kernel transposes, and sums over positions, as in
 * norms, become column sums. Layout ops stay as they are.
 *
 * Design: the request for a layout goes from users to operands, then from values to users, and
 * back once more; the first request for a value wins, and a value without one stays as written. A
 * graph with depthwise weight gradients other than those of plan/depthwise_wgrad.c stays as
 * written too: with channels last they would be read element by element. */
#include "relayout.h"

enum { TCI_LAYOUT_STEPS = 10 /* ops from a contraction to what a CAT takes */ };

/* Requested layout of a value: the axis that is contiguous where it is computed, and in memory. */
typedef struct tci_layout_want {
    int32_t axis;
    bool set, stored;
} tci_layout_want;

typedef struct tci_layout {
    const tci_algo *a;
    tci_scratch *s;
    tci_table wants, roots; /* roots: a set; users read it in their axis order */
} tci_layout;

static tci_layout_want tci_layout_of(const tci_layout *l, const tci_node *n)
{
    const tci_layout_want *w = (const tci_layout_want *)tci_table_find(&l->wants, n);
    return w ? *w : (tci_layout_want){0, false, false};
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
    w->stored = w->stored ||
                (stored && w->set && !tci_plan_is_leaf(n) && !tci_table_has(&l->roots, n));
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

static bool tci_layout_keeps(const tci_node *n, int axis)
{
    for (int i = 0; i < n->n_attr; i++) {
        if (n->attr[i] == axis) {
            return false;
        }
    }
    return true;
}

/* The axis of reduction n's operand that is axis a of it. */
static int tci_layout_reduced(const tci_node *n, int a)
{
    int axis = 0;
    while (a > 0 || !tci_layout_keeps(n, axis)) {
        a -= tci_layout_keeps(n, axis++);
    }
    return axis;
}

/* The axis of n's first operand, or of each where it has several, that is axis a of n; -1: none. */
static int tci_layout_below(const tci_node *n, int a)
{
    const tci_node *x = n->in[0];
    if (!tci_build_is_known(n->rank, n->shape) || !tci_build_is_known(x->rank, x->shape)) {
        return -1;
    }
    if (tci_op_is_reduce(n->op)) {
        return tci_layout_reduced(n, a);
    }
    bool spread = n->op == TCI_OP_EXPAND &&
                  (x->shape[a] != n->shape[a] || tci_node_count(x) == x->shape[a]);
    bool moved = n->op == TCI_OP_PAD || n->op == TCI_OP_SLICE || n->op == TCI_OP_CAT;
    return tci_op_is(n->op, TCI_IS_POINTWISE) || (n->op == TCI_OP_EXPAND && !spread) || moved ? a
           : n->op == TCI_OP_PERMUTE ? (int)n->attr[a]
           : n->op == TCI_OP_RESHAPE ? tci_plan_image_reshaped(n, a)
           : n->op == TCI_OP_WINDOW  ? tci_plan_image_axis(n, x, a)
                                     : -1;
}

/* True if n is computed elementwise from a contraction in at most this many steps. As a part of a
 * larger value it is then the output of a matrix unit, rather than sums that the whole finishes. */
static bool tci_layout_is_of_contract(const tci_node *n, int steps)
{
    bool found = n->op == TCI_OP_CONTRACT;
    for (int i = 0; i < n->n_in && steps > 0 && tci_op_is(n->op, TCI_IS_POINTWISE); i++) {
        found = found || tci_layout_is_of_contract(n->in[i], steps - 1);
    }
    return found;
}

/* n, which is wanted so, wants the same of its operands. */
static void tci_layout_pass_down(tci_layout *l, const tci_node *n)
{
    tci_layout_want want = tci_layout_of(l, n);
    int below = want.set && n->n_in > 0 ? tci_layout_below(n, want.axis) : -1;
    if (want.set && tci_op_is_reduce(n->op)) {
        tci_layout_ask_image(l, n->in[0]);
    }
    bool each = tci_op_is(n->op, TCI_IS_POINTWISE) || n->op == TCI_OP_CAT;
    for (int i = 0; i < (each ? n->n_in : 1) && below >= 0; i++) {
        bool part = n->op == TCI_OP_CAT && tci_layout_is_of_contract(n->in[i], TCI_LAYOUT_STEPS);
        tci_layout_ask(l, n->in[i], below, part);
    }
}

/* The axis of x that will be contiguous in memory, as far as this pass says. */
static int tci_layout_axis(const tci_layout *l, const tci_node *x)
{
    const tci_layout_want want = tci_layout_of(l, x);
    return want.stored ? want.axis : want.set ? -1 : x->rank - 1;
}

/* Contraction n of each channel alone is wanted as the image is that it reads through windows: each
 * element of that is read for many results, which are stored once. */
static void tci_layout_pass_alone(tci_layout *l, const tci_node *n)
{
    for (int i = 0; i < 2; i++) {
        tci_node *x = tci_below(n->in[i], TCI_THROUGH_CASTS, NULL);
        tci_node *source = x->op == TCI_OP_WINDOW ? tci_plan_image(l->a, x) : NULL;
        for (int a = 0; a < n->rank && source; a++) {
            const int at = tci_contract_place(n, 2, a, i);
            const int axis = at >= 0 ? tci_plan_image_axis(x, source, at) : -1;
            if (axis >= 0 && tci_contract_place(n, 2, a, 1 - i) >= 0 &&
                tci_dim_lt(1, n->shape[a]) && axis == tci_layout_axis(l, source)) {
                tci_layout_ask(l, n, a, false);
            }
        }
    }
}

/* n is wanted as its operands are. */
static void tci_layout_pass_up(tci_layout *l, const tci_node *n)
{
    if (n->op == TCI_OP_CONTRACT) {
        tci_layout_pass_alone(l, n);
        return;
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_layout_want want = tci_layout_of(l, n->in[i]);
        for (int a = 0; a < n->rank && want.set; a++) {
            if (tci_layout_below(n, a) == want.axis) {
                tci_layout_ask(l, n, a, false);
            }
        }
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

/* Operand `which` of f in memory with that axis last. */
static void tci_layout_operand(const tci_layout *l, tci_contract_form *f, int which, int axis)
{
    tci_node *x = f->in[which];
    const int64_t *perm = tci_layout_order(l, x->rank, axis, x->rank - 1);
    tci_contract_turn(l->s, f, which, perm);
    f->in[which] = tci_relayout(l->a, x, (tci_relayout_to){.order = perm, .is_turned = true});
}

/* True if sums over several axes are so short that threads compute them in vectors of filters
 * (loop/simt_short_reduction.c). */
static bool tci_layout_has_few(const tci_node *n)
{
    int64_t products = 1, axes = 0;
    for (int i = 0; i < n->in[0]->rank && products <= TCI_WINDOW_FEW; i++) {
        bool summed = tci_contract_sums_axis(n, 0, i);
        axes += summed && tci_dim_lt(1, n->in[0]->shape[i]);
        products *= summed ? tci_dim_hint(n->in[0]->shape[i]) : 1;
    }
    return products <= TCI_WINDOW_FEW && axes > 1;
}

/* Contraction n with its result's axes in that order. Where both operands have the last one, as in
 * a convolution of each channel by itself, or sums are short, what is no image has it last, too. */
static tci_node *tci_layout_contract(const tci_layout *l, tci_node *n, const int64_t *perm)
{
    tci_node *r = tci_contract_in_order(l->s, l->a->g, n, n->in, perm);
    tci_contract_form f = tci_contract_form_of(r);
    const int last[2] = {tci_contract_place(r, 2, r->rank - 1, 0),
                         tci_contract_place(r, 2, r->rank - 1, 1)};
    bool both = last[0] >= 0 && last[1] >= 0;
    for (int i = 0; i < 2 && (both || tci_layout_has_few(n)); i++) {
        if (f.in[i]->op != TCI_OP_WINDOW && last[i] >= 0) {
            tci_layout_operand(l, &f, i, last[i]);
        }
    }
    return tci_contract_make(l->s, l->a->g, &f, (tc_dtype)n->dtype, r->shape);
}

/* n, made element by element, likewise. */
static tci_node *tci_layout_pointwise(const tci_layout *l, tci_node *n, const int64_t *perm)
{
    tci_node **in = TCI_NEW_ARRAY(l->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = tci_algo_permute(l->a, n->in[i], perm);
    }
    return tci_graph_node(l->a->g, n->op, (tc_dtype)n->dtype, n->rank, in[0]->shape, n->n_in, in,
                          n->n_attr, n->attr);
}

/* Reduction n of an operand with that axis last; so is what it keeps of it. */
static tci_node *tci_layout_reduce(const tci_layout *l, tci_node *n, int axis)
{
    tci_node *x = n->in[0];
    int at = 0;
    for (int i = 0; i < axis; i++) {
        at += tci_layout_keeps(n, i);
    }
    x = tci_algo_permute(l->a, x, tci_layout_order(l, x->rank, axis, x->rank - 1));
    int64_t *attr = TCI_NEW_ARRAY(l->s, int64_t, n->n_attr);
    int n_attr = 0;
    for (int i = 0; i < n->n_attr; i++) {
        if (n->attr[i] != axis) {
            attr[n_attr++] = n->attr[i] - (n->attr[i] > axis);
        }
    }
    bool keeps = tci_layout_keeps(n, axis);
    if (!keeps) {
        attr[n_attr++] = x->rank - 1;
    }
    const int64_t *perm = tci_layout_order(l, n->rank, keeps ? at : n->rank - 1, n->rank - 1);
    tci_dim *shape = TCI_NEW_ARRAY(l->s, tci_dim, n->rank);
    for (int i = 0; i < n->rank; i++) {
        shape[i] = n->shape[perm[i]];
    }
    tci_node *r = tci_graph_node(l->a->g, n->op, (tc_dtype)n->dtype, n->rank, shape, 1, &x, n_attr,
                                 attr);
    return tci_layout_back(l, r, perm);
}

/* over, which is n over what stands for its operands, computed as it is wanted. */
static tci_node *tci_layout_node(const tci_layout *l, const tci_node *n, tci_node *over)
{
    tci_layout_want want = tci_layout_of(l, n);
    if (tci_op_is_reduce(n->op) && tci_layout_of(l, n->in[0]).set) {
        over = tci_layout_reduce(l, over, tci_layout_of(l, n->in[0]).axis);
    }
    if (!want.set) {
        return over;
    }
    const int64_t *perm = tci_layout_order(l, n->rank, want.axis, n->rank - 1);
    if (n->op == TCI_OP_CONTRACT) {
        over = tci_layout_back(l, tci_layout_contract(l, over, perm), perm);
    } else if (tci_op_is(n->op, TCI_IS_POINTWISE)) {
        over = tci_layout_back(l, tci_layout_pointwise(l, over, perm), perm);
    }
    if (want.stored) {
        tci_node *stored = tci_algo_permute(l->a, over, perm);
        tci_algo_force(l->a, stored);
        tci_table_add(l->a->images, stored);
        over = tci_layout_back(l, stored, perm);
    }
    return over;
}

/* True if both operands of such a gradient will have the layout that plan/depthwise_wgrad.c
 * takes. */
static bool tci_layout_is_alone(const tci_layout *l, const tci_node *n)
{
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        tci_node *image;
        int axis = tci_plan_alone_axis(l->a, n, i, &image);
        fits = fits && axis >= 0 && tci_layout_of(l, image).stored &&
               tci_layout_of(l, image).axis == axis;
    }
    return fits;
}

/* True if contraction n is another weight gradient of a depthwise convolution: it has the
 * kernel-window axes, and the channels, which both operands have. */
static bool tci_layout_learns_otherwise(const tci_layout *l, const tci_node *n)
{
    for (int i = 0; i < 2 && n->op == TCI_OP_CONTRACT; i++) {
        const tci_node *x = tci_below(n->in[i], TCI_THROUGH_CASTS, NULL);
        bool elements = x->op == TCI_OP_WINDOW && !tci_contract_sums_axis(n, i, x->rank - 1);
        tci_layout_want want = tci_layout_of(l, n->in[i]);
        if (elements && want.set && tci_contract_place(n, i, want.axis, 1 - i) >= 0) {
            return !tci_layout_is_alone(l, n);
        }
    }
    return false;
}

/* Decides the layout of each value; false if nothing changes. */
static bool tci_layout_decide(tci_layout *l, tci_node_list list)
{
    bool any = false;
    for (int i = list.n - 1; i >= 0; i--) {
        tci_node *n = list.items[i];
        for (int j = 0; j < 2 && n->op == TCI_OP_CONTRACT; j++) {
            tci_layout_ask_image(l, n->in[j]);
        }
        tci_layout_pass_down(l, n);
        any = any || tci_layout_of(l, n).stored;
    }
    for (int i = 0; i < list.n && any; i++) {
        tci_layout_pass_up(l, list.items[i]);
        any = !tci_layout_learns_otherwise(l, list.items[i]);
    }
    for (int i = list.n - 1; i >= 0 && any; i--) {
        tci_layout_pass_down(l, list.items[i]);
    }
    return any;
}

/* Set by a test of reduction orders, which layouts may change: every value stays as written. */
#ifdef TCI_TEST_ALLOC
bool tci_layout_is_off;
#else
enum { tci_layout_is_off = false };
#endif

TCI_FN void tci_plan_layout(const tci_algo *a, tci_node **roots, int n_roots)
{
    tci_layout l = {a, a->s, tci_table_in(a->s, sizeof(tci_layout_want)),
                    tci_table_in(a->s, sizeof(bool))};
    if (!tci_plan_has_image_unit(a->machine) || tci_layout_is_off) {
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
        tc_site site = over->site.file ? over->site : n->site;
        over = tci_layout_node(&l, n, over);
        tci_node *made = over->op == TCI_OP_PERMUTE && n->op != TCI_OP_PERMUTE ? over->in[0] : over;
        if (tci_table_has(a->forced, n)) {
            tci_algo_force(a, made);
        }
        made->site = made->site.file ? made->site : site;
        tci_table_put(&now, n, over);
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}
