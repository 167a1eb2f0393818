/* plan/relayout.c - builds copies of operands in another layout (axis order, row pitch, dtype),
 * and moves layout ops past other ops.
 *
 * In: an operand of a contraction, the layout that its route requests. Out: the nodes of the copy,
 * which is materialized, and of the view that restores the operand's axes. Design: a copy changes
 * where elements are stored, never which ones a contraction multiplies, so all users read it
 * through their index expressions as before. */
#include "relayout.h"

TCI_FN tci_node *tci_algo_permute(const tci_algo *a, tci_node *x, const int64_t *perm)
{
    int64_t *whole = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank);
    bool same = true;
    for (int i = 0; i < x->rank; i++) {
        whole[i] = x->op == TCI_OP_PERMUTE ? x->attr[perm[i]] : perm[i];
        shape[i] = x->shape[perm[i]];
        same = same && whole[i] == i;
    }
    x = x->op == TCI_OP_PERMUTE ? x->in[0] : x;
    return same ? x
                : tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                 x->rank, whole);
}

TCI_FN tci_node *tci_algo_pad_axis(const tci_algo *a, tci_node *x, int axis, int64_t size,
                                   tci_node *fill)
{
    tci_dim *shape = tci_scratch_copy(a->s, x->shape, sizeof(tci_dim) * (size_t)x->rank);
    int64_t *before = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    shape[axis] = size;
    tci_node *in[2] = {x, fill};
    return tci_graph_node(a->g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, shape, 2, in, x->rank,
                          before);
}

/* ---- copies ---- */

TCI_FN int tci_relayout_row_axis(const tci_node *n)
{
    int last = n->rank - 1;
    while (last > 0 && n->shape[last] == 1) {
        last--;
    }
    return n->shape[last] == 1 ? n->rank - 1 : last;
}

TCI_FN void tci_relayout_last(const tci_node *x, int axis, int64_t *order)
{
    for (int i = 0; i < x->rank; i++) {
        order[i] = i < axis ? i : i + 1 < x->rank ? i + 1 : axis;
    }
}

/* The first `size` elements of x along an axis. */
static tci_node *tci_relayout_slice_prefix(const tci_algo *a, tci_node *x, int axis, tci_dim size)
{
    tci_dim *shape = tci_scratch_copy(a->s, x->shape, sizeof(tci_dim) * (size_t)x->rank);
    int64_t *attr = TCI_NEW_ARRAY(a->s, int64_t, 2 * x->rank);
    for (int i = 0; i < x->rank; i++) {
        attr[2 * i + 1] = 1;
    }
    shape[axis] = size;
    return tci_graph_node(a->g, TCI_OP_SLICE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                          2 * x->rank, attr);
}

/* x with axis i where it had axis order[i], or (back) the other way round. Nothing is merged with a
 * PERMUTE below: that could be a view that others read, which must not become the copy. */
static tci_node *tci_relayout_turned(const tci_algo *a, tci_node *x, const int64_t *order,
                                     bool back)
{
    int64_t *perm = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank);
    for (int i = 0; i < x->rank; i++) {
        perm[back ? order[i] : i] = back ? i : order[i];
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[perm[i]];
    }
    return tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x, x->rank,
                          perm);
}

TCI_FN tci_node *tci_relayout(const tci_algo *a, tci_node *x, tci_relayout_to to)
{
    tci_dim before = to.size > 0 ? x->shape[to.axis] : 0;
    bool longer = to.size > 0 && before != to.size, turned = to.is_own;
    int axis = to.axis;
    if (longer) {
        tci_value zero = {.u = 0};
        x = tci_algo_pad_axis(a, x, axis, to.size, tci_graph_const(a->g, (tc_dtype)x->dtype, zero));
    }
    for (int i = 0; to.order && i < x->rank; i++) {
        turned = turned || to.order[i] != i;
        axis = to.order[i] == to.axis ? i : axis;
    }
    x = turned ? tci_relayout_turned(a, x, to.order, false) : x;
    tci_algo_force(a, x);
    x = longer ? tci_relayout_slice_prefix(a, x, axis, before) : x;
    return turned && !to.is_turned ? tci_relayout_turned(a, x, to.order, true) : x;
}

TCI_FN tci_node *tci_relayout_pitch(const tci_algo *a, tci_node *x, const int64_t *order, int align)
{
    tci_node as = *x; /* its shape in that order */
    as.shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank + 1);
    for (int i = 0; i < x->rank; i++) {
        as.shape[i] = x->shape[order ? order[i] : i];
    }
    int last = tci_relayout_row_axis(&as), axis = order ? (int)order[last] : last;
    int64_t size = tci_dim_known(tci_dim_mul(tci_dim_ceil_div(x->shape[axis], align), align));
    return tci_relayout(a, x, (tci_relayout_to){order, axis, size, true, false});
}

/* ---- layout ops over other values ---- */

TCI_FN tci_node *tci_relayout_over(const tci_algo *a, tci_node *x, const tci_node *source,
                                   tci_node *now)
{
    if (x == source) {
        return now;
    }
    tci_node *in[2] = {tci_relayout_over(a, x->in[0], source, now), x->n_in > 1 ? x->in[1] : NULL};
    tc_dtype t = (tc_dtype)(x->op == TCI_OP_CAST ? x->dtype : in[0]->dtype);
    if (in[1] && in[1]->dtype != t) {
        in[1] = tci_graph_const(a->g, t, (tci_value){.u = 0});
    }
    return in[0] == x->in[0]
               ? x
               : tci_graph_node(a->g, x->op, t, x->rank, x->shape, x->n_in, in, x->n_attr, x->attr);
}

/* True for a half as f32, or a small integer as i32. */
static bool tci_relayout_widens(tc_dtype from, tc_dtype to)
{
    bool small = tci_dtype_is_int(from) && tci_dtype_get(from)->bytes <= 2;
    return (to == TC_F32 && tci_dtype_is_half(from)) || (to == TC_I32 && small);
}

TCI_FN tci_node *tci_plan_narrow(const tci_algo *a, tci_node *n)
{
    tci_node *cast = tci_below(n, TCI_THROUGH_MOVEMENT, a->forced);
    bool widens = cast->op == TCI_OP_CAST && !tci_table_has(a->forced, cast) &&
                  tci_relayout_widens((tc_dtype)cast->in[0]->dtype, (tc_dtype)cast->dtype);
    return widens ? tci_relayout_over(a, n, cast, cast->in[0]) : NULL;
}

TCI_FN tci_node *tci_relayout_pad_narrow(const tci_algo *a, tci_node *n)
{
    tci_node *pad = tci_below(n, TCI_THROUGH_ALL, a->forced);
    bool open = pad->op == TCI_OP_PAD && !tci_table_has(a->forced, pad);
    tci_node *given = open ? tci_plan_narrow(a, pad->in[0]) : NULL;
    if (!given || pad->in[1]->op != TCI_OP_CONST || pad->in[1]->value.u != 0) {
        return n;
    }
    tci_node *now = tci_relayout_over(a, pad, pad->in[0], given);
    return tci_relayout_over(a, n, pad, tci_build_cast(a->g, now, (tc_dtype)pad->dtype));
}

/* True if n is padding of a value that is stored with its channels last: lanes along these share
 * its guards. */
static bool tci_relayout_pads_images(const tci_algo *a, const tci_node *n)
{
    return n->op == TCI_OP_PAD &&
           tci_table_has(a->images, tci_below(n->in[0], TCI_THROUGH_ALL, a->images));
}

TCI_FN void tci_relayout_store(const tci_algo *a, tci_node *n)
{
    tci_node *to = tci_below(n, TCI_THROUGH_ALL, a->forced), *least = NULL;
    for (; n != to; n = n->in[0]) {
        int bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
        int most = tci_dtype_get((tc_dtype)(least ? least : n->in[0])->dtype)->bytes;
        least = n->op == TCI_OP_CAST && bytes < most ? n : least;
    }
    if (!tci_op_is(to->op, TCI_IS_MEMORY | TCI_IS_NUMBER) && !tci_relayout_pads_images(a, to)) {
        tci_algo_force(a, least ? least : to);
    }
}
