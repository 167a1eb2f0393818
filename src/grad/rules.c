/* grad/rules.c - VJP rules that do not fit a column of ops/table.h: movement, contractions,
 * composites.
 *
 * In: a node, one of its operands, the gradient of the result. Out: the gradient of the operand.
 *
 * Design: the transpose of a movement op is made of existing movement ops and sums: slices become
 * pads, pads become slices, a window becomes a sum over windows. Gradients therefore need no
 * kernels of their own and can be differentiated again.
 *
 * The transpose of GATHER is SCATTER with addition, and the reverse. */
#include "grad.h"

#include <string.h>

#include "../graph/contraction_descriptor.h"

/* ---- helpers ---- */

static tci_node *tci_rule_number(const tci_vjp *v, tc_dtype t, double x)
{
    tci_value f = {.f = x}, i = {.i = (int64_t)x};
    return tci_vjp_built(v, tci_graph_const(v->g, t, tci_dtype_is_float(t) ? f : i));
}

static tci_node *tci_rule_binary(const tci_vjp *v, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_vjp_built(v, tci_build_ew(v->g, op, in));
}

static tci_node *tci_rule_size(const tci_vjp *v, tc_dtype t, tci_dim size)
{
    return tci_vjp_built(v, tci_build_size_value(v->g, size, t));
}

static tci_node *tci_rule_reshape(const tci_vjp *v, tci_node *x, int rank, const tci_dim *shape)
{
    return tci_vjp_built(v, tci_build_reshape(v->g, x, rank, shape));
}

static tci_node *tci_rule_sum(const tci_vjp *v, tci_node *x, const int *axes, int n, bool keepdims)
{
    tc_axes list = {axes, n, false};
    return tci_vjp_built(v, tci_build_reduce(v->g, TCI_OP_SUM, x, list, keepdims));
}

/* Zeros around x along one axis; negative counts cut off. */
static tci_node *tci_rule_pad(const tci_vjp *v, tci_node *x, int axis, tci_dim before,
                              tci_dim after)
{
    tci_node *zero = tci_rule_number(v, (tc_dtype)x->dtype, 0);
    return tci_vjp_built(v, tci_build_pad(v->g, x, axis, before, after, zero));
}

/* x with axis `axis` as two axes: one of `size` before it. */
static tci_dim *tci_rule_insert(const tci_vjp *v, const tci_node *x, int axis, tci_dim size)
{
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, x->rank + 1);
    for (int i = 0; i <= x->rank; i++) {
        shape[i] = i == axis ? size : x->shape[i - (i > axis)];
    }
    return shape;
}

/* step - 1 zeros between the elements along an axis. */
static tci_node *tci_rule_spread(const tci_vjp *v, tci_node *x, int axis, tci_dim step)
{
    tci_dim n = x->shape[axis];
    if (step == 1 || n == 0 || n == 1) {
        return x;
    }
    tci_dim *whole = tci_scratch_copy(v->s, x->shape, sizeof(*whole) * (size_t)x->rank);
    tci_node *apart = tci_rule_reshape(v, x, x->rank + 1, tci_rule_insert(v, x, axis + 1, 1));
    whole[axis] = tci_dim_mul(n, step);
    tci_node *padded = tci_rule_pad(v, apart, axis + 1, 0, tci_dim_sub(step, 1));
    tci_node *flat = tci_rule_reshape(v, padded, x->rank, whole);
    if (tci_dim_le(1, n)) {
        return tci_rule_pad(v, flat, axis, 0, tci_dim_sub(1, step));
    }
    /* where n may be 0 there may be no zeros to cut off */
    tci_dim end = tci_dim_max(tci_dim_sub(whole[axis], tci_dim_sub(step, 1)), 0);
    return tci_vjp_built(v, tci_build_slice(v->g, flat, axis, 0, end, 1));
}

/* 0, 1, 2 ... along one axis of a shape, 1 along the others. */
static tci_node *tci_rule_ramp(const tci_vjp *v, int rank, const tci_dim *shape, int axis)
{
    tci_dim *ones = TCI_NEW_ARRAY(v->s, tci_dim, rank);
    for (int i = 0; i < rank; i++) {
        ones[i] = i == axis ? shape[i] : 1;
    }
    return tci_rule_reshape(v, tci_vjp_built(v, tci_build_iota(v->g, shape[axis])), rank, ones);
}

/* Where `index`, of the same rank and with size 1 along the axis, names the position along that
 * axis; negative ones count from its end. */
static tci_node *tci_rule_hits(const tci_vjp *v, tci_node *index, int rank, const tci_dim *shape,
                               int axis)
{
    tci_node *i = tci_vjp_built(v, tci_build_cast(v->g, index, TC_I64));
    tci_node *zero = tci_rule_number(v, TC_I64, 0);
    tci_node *size = tci_rule_size(v, TC_I64, shape[axis]);
    tci_node *from_end = tci_rule_binary(v, TCI_OP_ADD, i, size);
    tci_node *place = tci_vjp_built(v, tci_build_where(v->g, tci_rule_binary(v, TCI_OP_LT, i, zero),
                                                       from_end, i));
    return tci_rule_binary(v, TCI_OP_EQ, place, tci_rule_ramp(v, rank, shape, axis));
}

static int tci_rule_find(const int *labels, int n, int label)
{
    for (int i = 0; i < n; i++) {
        if (labels[i] == label) {
            return i;
        }
    }
    return -1;
}

/* ---- choice and conversion ---- */

static tci_node *tci_vjp_WHERE(const tci_vjp *v)
{
    tci_node *zero = tci_rule_number(v, (tc_dtype)v->n->dtype, 0), *c = v->n->in[0];
    return v->which == 1 ? tci_build_where(v->g, c, v->grad, zero)
                         : tci_build_where(v->g, c, zero, v->grad);
}

static tci_node *tci_vjp_CAST(const tci_vjp *v)
{
    return tci_build_cast(v->g, v->grad, (tc_dtype)v->n->in[0]->dtype);
}

/* ---- movement ---- */

static tci_node *tci_vjp_RESHAPE(const tci_vjp *v)
{
    return tci_build_reshape(v->g, v->grad, v->n->in[0]->rank, v->n->in[0]->shape);
}

static tci_node *tci_vjp_PERMUTE(const tci_vjp *v)
{
    int *back = TCI_NEW_ARRAY(v->s, int, v->n->rank);
    for (int i = 0; i < v->n->rank; i++) {
        back[v->n->attr[i]] = i;
    }
    return tci_build_permute(v->g, v->grad, v->n->rank, back);
}

static tci_node *tci_vjp_EXPAND(const tci_vjp *v)
{
    const tci_node *n = v->n;
    int *axes = TCI_NEW_ARRAY(v->s, int, n->rank), n_axes = 0;
    for (int i = 0; i < n->rank; i++) {
        if (n->shape[i] != n->in[0]->shape[i]) {
            axes[n_axes++] = i;
        }
    }
    return tci_rule_sum(v, v->grad, axes, n_axes, true);
}

/* Element j of the result is element start + j * step of x. */
static tci_node *tci_vjp_SLICE(const tci_vjp *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_node *r = v->grad;
    for (int i = 0; i < n->rank; i++) {
        tci_dim start = n->attr[2 * i], step = n->attr[2 * i + 1], count = n->shape[i];
        if (count != 0 && tci_dim_lt(step, 0)) {
            r = tci_vjp_built(v, tci_build_flip(v->g, r, i));
            start = tci_dim_add(start, tci_dim_mul(tci_dim_sub(count, 1), step));
            step = tci_dim_neg(step);
        }
        r = tci_rule_spread(v, r, i, step);
        tci_dim end = tci_dim_add(start, r->shape[i]);
        r = tci_rule_pad(v, r, i, start, tci_dim_sub(x->shape[i], end));
    }
    return r;
}

static tci_node *tci_vjp_PAD(const tci_vjp *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_dim *before = TCI_NEW_ARRAY(v->s, tci_dim, n->rank);
    tci_dim *after = TCI_NEW_ARRAY(v->s, tci_dim, n->rank);
    tci_node *zero = tci_rule_number(v, (tc_dtype)n->dtype, 0);
    int64_t away = v->which ? -1 : 1;
    for (int i = 0; i < n->rank; i++) {
        tci_dim end = tci_dim_add(x->shape[i], n->attr[i]);
        before[i] = tci_dim_mul(n->attr[i], -away);
        after[i] = tci_dim_mul(tci_dim_sub(end, n->shape[i]), away);
    }
    if (!v->which) {
        return tci_build_pad_axes(v->g, v->grad, before, after, zero);
    }
    /* the fill: all elements that are not x's */
    tci_value yes = {.i = 1}, no = {.i = 0};
    tci_node *inside = tci_build_broadcast(v->g, tci_graph_const(v->g, TC_BOOL, yes), x->rank,
                                           x->shape);
    inside = tci_build_pad_axes(v->g, inside, before, after, tci_graph_const(v->g, TC_BOOL, no));
    tci_node *outside = tci_vjp_built(v, tci_build_where(v->g, inside, zero, v->grad));
    tc_axes all = {NULL, 0, true};
    return tci_build_reduce(v->g, TCI_OP_SUM, outside, all, false);
}

static tci_node *tci_vjp_CAT(const tci_vjp *v)
{
    int axis = (int)v->n->attr[0];
    tci_dim start = 0;
    for (int i = 0; i < v->which; i++) {
        start = tci_dim_add(start, v->n->in[i]->shape[axis]);
    }
    tci_dim stop = tci_dim_add(start, v->n->in[v->which]->shape[axis]);
    return tci_build_slice(v->g, v->grad, axis, start, stop, 1);
}

/* ---- windows: position o * stride + j * dilation has element j of window o ----
 *
 * The way back looks at a position and asks for the windows over it. With g = gcd(stride,
 * dilation), s = stride / g, d = dilation / g and j = s t + e, 0 <= e < s, the position is
 *     g (s (o + d t) + d e)
 * so position m = o + d t of phase e takes element s t + e of window m - d t for every t: a
 * traversal with stride 1 whatever the stride, without a remainder to ask for. The phases then
 * interleave: position s m + d e is number q of residue r, and s and d have no common factor. */
typedef struct tci_rule_phases {
    int axis;
    tci_dim kernel, taps; /* elements; most of them to one phase */
    tci_dim apart, s, d;  /* g, s, d; numbers where phases are many */
} tci_rule_phases;

static int64_t tci_rule_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Strides are numbers but for the windows of tci_rule_shear. */
static tci_rule_phases tci_rule_phases_of(const tci_vjp *v, const tci_dim *entry)
{
    tci_rule_phases p = {.axis = (int)tci_dim_known(entry[0]), .kernel = entry[1], .apart = 1};
    tci_dim stride = entry[2], dilation = entry[3];
    if (tci_dim_is_known(stride) && tci_dim_is_known(dilation)) {
        p.apart = tci_rule_gcd(tci_dim_known(stride), tci_dim_known(dilation));
    } else {
        TCI_ASSERT(v->s, tci_dim_divides(stride, tci_dim_sub(dilation, 1)));
    }
    p.s = tci_dim_div(stride, p.apart);
    p.d = tci_dim_div(dilation, p.apart);
    p.taps = tci_dim_ceil_div(p.kernel, p.s);
    return p;
}

static tci_node *tci_rule_flip(const tci_vjp *v, tci_node *x, int axis)
{
    return tci_vjp_built(v, tci_build_flip(v->g, x, axis));
}

static tci_node *tci_rule_slice(const tci_vjp *v, tci_node *x, int axis, tci_dim start,
                                tci_dim stop)
{
    return tci_vjp_built(v, tci_build_slice(v->g, x, axis, start, stop, 1));
}

/* Axis `from` becomes axis `to`; the others keep their order. */
static tci_node *tci_rule_move(const tci_vjp *v, tci_node *x, int from, int to)
{
    int *order = TCI_NEW_ARRAY(v->s, int, x->rank);
    for (int i = 0; i < x->rank; i++) {
        order[i] = i == to ? from : i - (i > to) + (i - (i > to) >= from);
    }
    return tci_vjp_built(v, tci_build_permute(v->g, x, x->rank, order));
}

/* Axis `axis` of outer * inner elements as two. */
static tci_node *tci_rule_part(const tci_vjp *v, tci_node *x, int axis, tci_dim outer,
                               tci_dim inner)
{
    tci_dim *shape = tci_rule_insert(v, x, axis, outer);
    shape[axis + 1] = inner;
    return tci_rule_reshape(v, x, x->rank + 1, shape);
}

/* Axes `axis` and axis + 1 as one. */
static tci_node *tci_rule_merge(const tci_vjp *v, tci_node *x, int axis)
{
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, x->rank);
    for (int i = 0; i + 1 < x->rank; i++) {
        shape[i] = i == axis ? tci_dim_mul(x->shape[i], x->shape[i + 1]) : x->shape[i + (i > axis)];
    }
    return tci_rule_reshape(v, x, x->rank - 1, shape);
}

/* Axis `from`, after `axis`, is element t: position m takes (m - step * t, t), zeros outside, and
 * `axis` grows by step * (elements - 1). The elements are in reverse afterwards: with them so it is
 * a stride of step * elements + 1 through these two axes laid out as one. */
static tci_node *tci_rule_shear(const tci_vjp *v, tci_node *x, int axis, int from, tci_dim step)
{
    tci_dim n = x->shape[from], reach = tci_dim_mul(tci_dim_sub(n, 1), step);
    if (n == 1) {
        return x;
    }
    x = tci_rule_flip(v, x, from);
    x = tci_rule_pad(v, x, axis, reach, reach);
    x = tci_rule_merge(v, tci_rule_move(v, x, from, axis + 1), axis);
    const tci_dim one_axis[4] = {axis, n, n, tci_dim_add(tci_dim_mul(step, n), 1)};
    x = tci_vjp_built(v, tci_build_window(v->g, x, 1, one_axis));
    return tci_rule_move(v, x, x->rank - 1, from);
}

/* [.., elements] of axis `from` as [.., taps, phases]; positions of stride 1 instead of windows. */
static tci_node *tci_rule_unwindow(const tci_vjp *v, tci_node *x, tci_rule_phases p, int from)
{
    tci_dim all = tci_dim_mul(p.taps, p.s);
    x = tci_rule_pad(v, x, from, 0, tci_dim_sub(all, p.kernel));
    x = tci_rule_part(v, x, from, p.taps, p.s);
    return tci_rule_shear(v, x, p.axis, from, p.d);
}

/* Where s m + d e is not number m + c e of residue e for one c: phase by phase to its residue, with
 * zeros at those that no element has. */
static tci_node *tci_rule_sort_phases(const tci_vjp *v, tci_node *x, tci_rule_phases p, int axis)
{
    const int64_t s = tci_dim_known(p.s), d = tci_dim_known(p.d);
    int64_t used = tci_dim_is_known(p.kernel) ? TCI_MIN(tci_dim_known(p.kernel), s) : s, n = 0;
    int64_t *order = TCI_NEW_ARRAY(v->s, int64_t, used + 1);
    tci_node **parts = TCI_NEW_ARRAY(v->s, tci_node *, used);
    for (int64_t e = 0; e < used; e++) { /* by residue */
        int64_t at = n++;
        for (; at > 0 && d * order[at - 1] % s > d * e % s; at--) {
            order[at] = order[at - 1];
        }
        order[at] = e;
    }
    for (int64_t i = 0; i < used; i++) {
        int64_t e = order[i], before = i ? 0 : d * e % s;
        int64_t next = i + 1 < used ? d * order[i + 1] % s : s;
        tci_node *part = tci_rule_slice(v, x, axis + 1, e, e + 1);
        part = tci_rule_pad(v, part, axis, d * e / s, d * (used - 1) / s - d * e / s);
        parts[i] = tci_rule_pad(v, part, axis + 1, before, next - d * e % s - 1);
    }
    return tci_vjp_built(v, tci_build_cat(v->g, parts, (int)used, axis + 1));
}

/* Axis `axis`, of positions m, and the next, of phases e, to one axis of `size` positions. */
static tci_node *tci_rule_interleave(const tci_vjp *v, tci_node *x, tci_rule_phases p, int axis,
                                     tci_dim size)
{
    tci_dim more = tci_dim_sub(p.d, 1);
    if (!tci_dim_divides(p.s, more)) {
        x = tci_rule_sort_phases(v, x, p, axis);
    } else if (more != 0 && p.s != 1) {
        x = tci_rule_shear(v, x, axis, axis + 1, tci_dim_div(more, p.s));
        x = tci_rule_flip(v, x, axis + 1);
    }
    x = tci_rule_merge(v, x, axis);
    x = tci_rule_spread(v, x, axis, p.apart);
    return tci_rule_pad(v, x, axis, 0, tci_dim_sub(size, x->shape[axis]));
}

/* x's axes, each of a window's positions m followed by its phases e, to x's own; p: one for each of
 * n windows. */
static tci_node *tci_rule_interleave_all(const tci_vjp *v, tci_node *r, const tci_node *x,
                                         const tci_rule_phases *p, int n)
{
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        int which = -1, at = axis;
        for (int i = 0; i < n; i++) {
            which = p[i].axis == axis ? i : which;
            at += p[i].axis < axis;
        }
        if (which >= 0) {
            r = tci_rule_interleave(v, r, p[which], at, x->shape[axis]);
        }
    }
    return r;
}

/* x's axes and n of phases among them: phases[i] to right after the axis of window i. */
static tci_node *tci_rule_pair(const tci_vjp *v, tci_node *r, const tci_node *x, const int *phases,
                               const tci_rule_phases *p, int n)
{
    int *order = TCI_NEW_ARRAY(v->s, int, r->rank), at = 0, from = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        while (tci_rule_find(phases, n, from) >= 0) {
            from++;
        }
        order[at++] = from++;
        for (int i = 0; i < n; i++) {
            if (p[i].axis == axis) {
                order[at++] = phases[i];
            }
        }
    }
    return tci_vjp_built(v, tci_build_permute(v->g, r, r->rank, order));
}

/* The last n axes summed; one of size 1 only goes. */
static tci_node *tci_rule_sum_last(const tci_vjp *v, tci_node *r, int n)
{
    int *axes = TCI_NEW_ARRAY(v->s, int, n), n_axes = 0, rank = r->rank - n;
    for (int i = rank; i < r->rank; i++) {
        if (r->shape[i] != 1) {
            axes[n_axes++] = i;
        }
    }
    tci_node *sum = n_axes ? tci_rule_sum(v, r, axes, n_axes, false) : r;
    return tci_rule_reshape(v, sum, rank, r->shape);
}

/* All windows to phases, one sum over the taps of all, all phases to positions. The sum has the
 * phases before the first window's axis, so that its last axis is one of positions, a long one. */
static tci_node *tci_vjp_WINDOW(const tci_vjp *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    int n_windows = n->rank - x->rank, first = x->rank;
    int *phases = TCI_NEW_ARRAY(v->s, int, n_windows);
    tci_rule_phases *p = TCI_NEW_ARRAY(v->s, tci_rule_phases, n_windows);
    tci_node *r = v->grad;
    for (int i = 0; i < n_windows; i++) {
        p[i] = tci_rule_phases_of(v, tci_node_dims(n) + 4 * i);
        r = tci_rule_unwindow(v, r, p[i], x->rank + 2 * i);
        first = TCI_MIN(first, p[i].axis);
    }
    for (int i = 0; i < n_windows; i++) {
        r = tci_rule_move(v, r, x->rank + 2 * i + 1, first + i);
        phases[i] = first + i;
    }
    r = tci_rule_sum_last(v, r, n_windows);
    r = tci_rule_pair(v, r, x, phases, p, n_windows);
    return tci_rule_interleave_all(v, r, x, p, n_windows);
}

TCI_FN tci_node *tci_vjp_pool(const tci_vjp *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    if (n->n_attr != x->rank - x->in[0]->rank || n->attr[0] != n->rank || tci_node_count(n) == 0) {
        return NULL;
    }
    int last = n->rank;
    tc_axes axis = {&last, 1, false};
    tci_dim each = 1;
    for (int i = n->rank; i < x->rank; i++) {
        each = tci_dim_mul(each, x->shape[i]);
    }
    tci_dim *flat = tci_rule_insert(v, n, n->rank, each);
    tci_node *elements = tci_rule_reshape(v, n->in[0], n->rank + 1, flat);
    tci_node *first = tci_build_reduce(v->g, TCI_OP_ARGMAX, elements, axis, true);
    tci_node *hits = tci_rule_binary(v, TCI_OP_EQ, tci_vjp_built(v, first),
                                     tci_rule_ramp(v, n->rank + 1, flat, last));
    tci_node *zero = tci_rule_number(v, (tc_dtype)n->dtype, 0);
    tci_node *grad = tci_vjp_built(v, tci_build_unsqueeze(v->g, v->grad, last));
    return tci_rule_reshape(v, tci_build_where(v->g, hits, grad, zero), x->rank, x->shape);
}

/* ---- at indices ---- */

/* One number as a whole tensor. */
static tci_node *tci_rule_fill(const tci_vjp *v, tc_dtype t, double x, const tci_node *like)
{
    tci_node *number = tci_rule_number(v, t, x);
    return tci_vjp_built(v, tci_build_broadcast(v->g, number, like->rank, like->shape));
}

/* x at v->n's indices along its axis. */
static tci_node *tci_rule_gather(const tci_vjp *v, tci_node *x)
{
    return tci_vjp_built(v, tci_build_gather(v->g, x, (int)v->n->attr[0], v->n->in[1]));
}

static tci_node *tci_rule_scatter(const tci_vjp *v, tci_node *x, tci_node *src, tci_mode mode)
{
    int axis = (int)v->n->attr[0];
    return tci_vjp_built(v, tci_build_scatter(v->g, x, axis, v->n->in[1], src, mode));
}

/* All reads of an element give their gradients to it, in the order of the axis. */
static tci_node *tci_vjp_GATHER(const tci_vjp *v)
{
    tci_node *zero = tci_rule_fill(v, (tc_dtype)v->n->dtype, 0, v->n->in[0]);
    return tci_rule_scatter(v, zero, v->grad, TCI_MODE_ADD);
}

/* SET: an element takes the gradient if it was the last one stored to its place: so says its number
 * along the axis, stored the same way. */
static tci_node *tci_rule_set(const tci_vjp *v)
{
    const tci_node *n = v->n, *src = n->in[2];
    tc_dtype t = (tc_dtype)n->dtype;
    if (v->which == 0) {
        return tci_rule_scatter(v, v->grad, tci_rule_fill(v, t, 0, src), TCI_MODE_SET);
    }
    tci_node *ramp = tci_rule_ramp(v, src->rank, src->shape, (int)n->attr[0]);
    ramp = tci_vjp_built(v, tci_build_broadcast(v->g, ramp, src->rank, src->shape));
    tci_node *last = tci_rule_scatter(v, tci_rule_fill(v, TC_I64, 0, n), ramp, TCI_MODE_SET);
    tci_node *hits = tci_rule_binary(v, TCI_OP_EQ, tci_rule_gather(v, last), ramp);
    return tci_build_where(v->g, hits, tci_rule_gather(v, v->grad), tci_rule_number(v, t, 0));
}

/* MIN, MAX: all that are equal to the result share its gradient; where that is NaN so is the
 * gradient of all that it was taken of, as in PyTorch 2.15. */
static tci_node *tci_rule_extreme(const tci_vjp *v)
{
    tci_node *n = v->n;
    tc_dtype t = (tc_dtype)n->dtype, sums = (tc_dtype)tci_dtype_get(t)->compute;
    tci_node *own = tci_rule_binary(v, TCI_OP_EQ, n->in[0], n);
    tci_node *hits = tci_rule_binary(v, TCI_OP_EQ, n->in[2], tci_rule_gather(v, n));
    tci_node *ones = tci_vjp_built(v, tci_build_cast(v->g, hits, sums));
    tci_node *equal = tci_vjp_built(v, tci_build_cast(v->g, own, sums));
    equal = tci_rule_scatter(v, equal, ones, TCI_MODE_ADD);
    tci_node *grad = tci_vjp_built(v, tci_build_cast(v->g, v->grad, sums));
    tci_node *share = tci_rule_binary(v, TCI_OP_DIV, grad, equal), *zero = tci_rule_number(v, t, 0);
    share = tci_vjp_built(v, tci_build_cast(v->g, share, t));
    tci_node *nan = tci_vjp_built(v, tci_build_ew(v->g, TCI_OP_ISNAN, &n));
    tci_node *else_of = tci_vjp_built(v, tci_build_where(v->g, nan, n, zero));
    return v->which == 0 ? tci_build_where(v->g, own, share, else_of)
                         : tci_build_where(v->g, hits, tci_rule_gather(v, share),
                                           tci_rule_gather(v, else_of));
}

static tci_node *tci_vjp_SCATTER(const tci_vjp *v)
{
    switch ((tci_mode)v->n->attr[1]) {
    case TCI_MODE_SET: return tci_rule_set(v);
    case TCI_MODE_ADD: return v->which == 0 ? v->grad : tci_rule_gather(v, v->grad);
    case TCI_MODE_MIN:
    case TCI_MODE_MAX: return tci_rule_extreme(v);
    case TCI_MODE_MUL: return tci_product_scattered(v);
    case TCI_MODE_COUNT: break;
    }
    TCI_ASSERT(v->s, false);
    return NULL;
}

/* MIN, MAX: to the last element that is the result so far. */
static tci_node *tci_rule_running_extreme(const tci_vjp *v)
{
    const int axis = (int)tci_dim_known(v->n->attr[0]);
    tci_node *places = tci_vjp_built(v, tci_build_running_place(v->g, v->n));
    tci_node *zeros = tci_rule_fill(v, (tc_dtype)v->n->dtype, 0, v->n);
    return tci_build_scatter(v->g, zeros, axis, places, v->grad, TCI_MODE_ADD);
}

static tci_node *tci_vjp_SCAN(const tci_vjp *v)
{
    switch ((tci_mode)v->n->attr[2]) {
    case TCI_MODE_ADD:
        return tci_build_scan(v->g, v->grad, (int)tci_dim_known(v->n->attr[0]), !v->n->attr[1],
                              TCI_MODE_ADD);
    case TCI_MODE_MUL: return tci_product_running(v);
    case TCI_MODE_MIN:
    case TCI_MODE_MAX: return tci_rule_running_extreme(v);
    case TCI_MODE_SET:
    case TCI_MODE_COUNT: break;
    }
    TCI_ASSERT(v->s, false);
    return NULL;
}

/* ---- contractions ---- */

/* Labels of the operands (0, 1) or the result (2) of a CONTRACT; room for more after them. */
static int *tci_rule_labels(const tci_vjp *v, int which, int room)
{
    const int64_t *at = tci_contract_labels(v->n, which);
    int *labels = TCI_NEW_ARRAY(v->s, int, v->n->attr[which] + room);
    for (int i = 0; i < v->n->attr[which]; i++) {
        labels[i] = (int)at[i];
    }
    return labels;
}

/* The result's gradient times the other operand, summed over what this operand lacks. An axis that
 * only this operand has was summed alone: its elements all take the same. */
static tci_node *tci_vjp_CONTRACT(const tci_vjp *v)
{
    const tci_node *n = v->n, *x = n->in[v->which];
    tci_node *other = n->in[1 - v->which];
    const int *own = tci_rule_labels(v, v->which, 0);
    const int *others = tci_rule_labels(v, 1 - v->which, 0), *out = tci_rule_labels(v, 2, 0);
    int *kept = TCI_NEW_ARRAY(v->s, int, x->rank), n_kept = 0;
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, x->rank);
    for (int i = 0; i < x->rank; i++) {
        bool known = tci_rule_find(out, n->rank, own[i]) >= 0 ||
                     tci_rule_find(others, other->rank, own[i]) >= 0;
        shape[i] = known ? x->shape[i] : 1;
        if (known) {
            kept[n_kept++] = own[i];
        }
    }
    tci_node *grad = tci_vjp_built(v, tci_build_cast(v->g, v->grad, (tc_dtype)x->dtype));
    tci_node *r = tci_build_contract(v->g, grad, out, other, others, n_kept, kept);
    r = tci_rule_reshape(v, tci_vjp_built(v, r), x->rank, shape);
    return tci_build_broadcast(v->g, r, x->rank, x->shape);
}

/* tci_vjp_through_window with its labels checked: one operand of v->n is a WINDOW of x, the other
 * has the window's elements. */
typedef struct tci_rule_transpose {
    const tci_vjp *v;
    const tci_node *x;
    int n; /* windows */
    const tci_rule_phases *p;
    const int *own, *others, *out; /* labels */
    int fresh;                     /* first of n labels that nothing has */
} tci_rule_transpose;

/* Phases before kernel mod s have a tap more than the others: how many, where these two sets are
 * worth a contraction each; else -1, and some taps of some phases may be zeros. */
static int64_t tci_rule_phase_surplus(tci_rule_phases p)
{
    bool known = tci_dim_is_known(p.kernel) && tci_dim_is_known(p.s);
    int64_t more = known ? tci_dim_known(tci_dim_mod(p.kernel, p.s)) : 0;
    return more != 0 && tci_dim_lt(1, p.taps) ? more : -1;
}

/* The other operand with the elements of window i as taps, in reverse, and the phases of a set,
 * which are windows of the elements: nothing is copied but where some taps are zeros. One tap is a
 * piece of them: a matrix unit takes no window of it. */
static tci_node *tci_rule_taps(const tci_rule_transpose *t, tci_node *other, int i, int at,
                               bool less, tci_dim *taps)
{
    const tci_vjp *v = t->v;
    tci_rule_phases p = t->p[i];
    int64_t fuller = tci_rule_phase_surplus(p);
    tci_dim phases = p.taps == 1 ? p.kernel : p.s, first = 0;
    *taps = less ? tci_dim_sub(p.taps, 1) : p.taps;
    if (fuller >= 0) {
        first = less ? fuller : 0;
        phases = less ? tci_dim_sub(phases, fuller) : fuller;
    } else {
        tci_dim more = tci_dim_sub(tci_dim_mul(*taps, phases), p.kernel);
        other = tci_rule_pad(v, other, at, 0, more);
    }
    tci_dim end = tci_dim_add(tci_dim_mul(tci_dim_sub(*taps, 1), p.s), phases);
    other = tci_rule_slice(v, other, at, first, tci_dim_add(first, end));
    if (*taps == 1) {
        return tci_rule_part(v, other, at, *taps, phases);
    }
    const tci_dim each[4] = {at, phases, p.s, 1};
    other = tci_vjp_built(v, tci_build_window(v->g, other, 1, each));
    return tci_rule_flip(v, tci_rule_move(v, other, other->rank - 1, at + 1), at);
}

/* One contraction over windows of taps, with stride 1 whatever the stride of v->n's windows:
 * [phases of a set for each window, x's axes with positions in them]. Bit i of less: of window i
 * the set of phases with fewer taps. */
static tci_node *tci_rule_transposed_set(const tci_rule_transpose *t, uint64_t less)
{
    const tci_vjp *v = t->v;
    tci_node *other = v->n->in[1 - v->which];
    tci_node *grad = tci_vjp_built(v, tci_build_cast(v->g, v->grad, (tc_dtype)other->dtype));
    int n_others = other->rank, n_out = v->n->rank, room = n_others + n_out + t->n;
    int *others = TCI_NEW_ARRAY(v->s, int, room), *out = TCI_NEW_ARRAY(v->s, int, room);
    int *result = TCI_NEW_ARRAY(v->s, int, t->n + t->x->rank);
    tci_dim *spec = TCI_NEW_ARRAY(v->s, tci_dim, 4 * t->n), taps;
    memcpy(others, t->others, sizeof(int) * (size_t)n_others);
    memcpy(out, t->out, sizeof(int) * (size_t)n_out);
    memcpy(result + t->n, t->own, sizeof(int) * (size_t)t->x->rank);
    for (int i = 0; i < t->n; i++) {
        int elements = t->own[t->x->rank + i], at = tci_rule_find(others, n_others, elements);
        int axis = tci_rule_find(out, v->n->rank, t->own[t->p[i].axis]);
        other = tci_rule_taps(t, other, i, at, less >> i & 1, &taps);
        memmove(others + at + 1, others + at, sizeof(int) * (size_t)(n_others++ - at));
        others[at + 1] = result[i] = t->fresh + i;
        tci_dim reach = tci_dim_mul(tci_dim_sub(taps, 1), t->p[i].d);
        grad = tci_rule_pad(v, grad, axis, reach, reach);
        const tci_dim stepped[4] = {axis, taps, 1, t->p[i].d};
        memcpy(spec + 4 * i, stepped, sizeof(stepped));
        out[n_out++] = elements;
    }
    grad = tci_vjp_built(v, tci_build_window(v->g, grad, t->n, spec));
    return tci_vjp_built(v, tci_build_contract(v->g, grad, out, other, others, t->n + t->x->rank,
                                               result));
}

/* All phases of the windows from i on, of those before it the sets in `less`. */
static tci_node *tci_rule_transposed(const tci_rule_transpose *t, int i, uint64_t less)
{
    const tci_vjp *v = t->v;
    if (i == t->n) {
        return tci_rule_transposed_set(t, less);
    }
    tci_node *parts[2] = {tci_rule_transposed(t, i + 1, less), NULL}, *r = parts[0];
    if (tci_rule_phase_surplus(t->p[i]) >= 0) {
        parts[1] = tci_rule_transposed(t, i + 1, less | (uint64_t)1 << i);
        parts[1] = tci_rule_pad(v, parts[1], t->n + t->p[i].axis, 0, t->p[i].d);
        r = tci_vjp_built(v, tci_build_cat(v->g, parts, 2, i));
    }
    return tci_rule_pad(v, r, i, 0, tci_dim_sub(t->p[i].s, r->shape[i]));
}

TCI_FN tci_node *tci_vjp_through_window(const tci_vjp *v)
{
    const tci_node *n = v->n, *window = n->in[v->which], *x = window->in[0];
    const tci_node *other = n->in[1 - v->which];
    int n_windows = window->rank - x->rank;
    const int *own = tci_rule_labels(v, v->which, 0);
    const int *others = tci_rule_labels(v, 1 - v->which, 0);
    const int *out = tci_rule_labels(v, 2, 0);
    for (int i = 0; i < x->rank; i++) {
        if (tci_rule_find(out, n->rank, own[i]) < 0 &&
            tci_rule_find(others, other->rank, own[i]) < 0) {
            return NULL;
        }
    }
    for (int i = 0; i < n_windows; i++) {
        int places = own[window->attr[4 * i]], elements = own[x->rank + i];
        if (tci_rule_find(out, n->rank, places) < 0 ||
            tci_rule_find(others, other->rank, places) >= 0 ||
            tci_rule_find(out, n->rank, elements) >= 0 ||
            tci_rule_find(others, other->rank, elements) < 0) {
            return NULL;
        }
    }
    int *phases = TCI_NEW_ARRAY(v->s, int, n_windows);
    tci_rule_phases *p = TCI_NEW_ARRAY(v->s, tci_rule_phases, n_windows);
    tci_rule_transpose t = {v, x, n_windows, p, own, others, out, 0};
    for (int i = 0; i < window->rank; i++) {
        t.fresh = TCI_MAX(t.fresh, own[i] + 1);
    }
    for (int i = 0; i < other->rank; i++) {
        t.fresh = TCI_MAX(t.fresh, others[i] + 1);
    }
    for (int i = 0; i < n_windows; i++) {
        p[i] = tci_rule_phases_of(v, tci_node_dims(window) + 4 * i);
        phases[i] = i;
    }
    tci_node *r = tci_rule_transposed(&t, 0, 0);
    r = tci_rule_pair(v, r, x, phases, p, n_windows);
    return tci_rule_interleave_all(v, r, x, p, n_windows);
}

/* ---- composites: in the compute dtype, rounded once ---- */

/* y (grad - sum(grad y)) */
static tci_node *tci_vjp_SOFTMAX(const tci_vjp *v)
{
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)v->n->dtype)->compute;
    int axis = (int)v->n->attr[0];
    tci_node *y = tci_build_cast(v->g, v->n, t), *grad = tci_build_cast(v->g, v->grad, t);
    tci_node *sum = tci_rule_sum(v, tci_rule_binary(v, TCI_OP_MUL, grad, y), &axis, 1, true);
    tci_node *r = tci_rule_binary(v, TCI_OP_MUL, y, tci_rule_binary(v, TCI_OP_SUB, grad, sum));
    return tci_build_cast(v->g, r, (tc_dtype)v->n->dtype);
}

/* grad - exp(y) sum(grad) */
static tci_node *tci_vjp_LOG_SOFTMAX(const tci_vjp *v)
{
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)v->n->dtype)->compute;
    int axis = (int)v->n->attr[0];
    tci_node *y = tci_build_cast(v->g, v->n, t), *grad = tci_build_cast(v->g, v->grad, t);
    tci_node *sum = tci_rule_sum(v, tci_vjp_built(v, grad), &axis, 1, true);
    tci_node *p = tci_vjp_built(v, tci_build_ew(v->g, TCI_OP_EXP, &y));
    tci_node *r = tci_rule_binary(v, TCI_OP_SUB, grad, tci_rule_binary(v, TCI_OP_MUL, p, sum));
    return tci_build_cast(v->g, r, (tc_dtype)v->n->dtype);
}

static tci_node *tci_rule_mean(const tci_vjp *v, tci_node *x, const int *axes, int n)
{
    tci_dim count = 1;
    for (int i = 0; i < n; i++) {
        count = tci_dim_mul(count, x->shape[axes[i]]);
    }
    return tci_rule_binary(v, TCI_OP_DIV, tci_rule_sum(v, x, axes, n, true),
                           tci_rule_size(v, (tc_dtype)x->dtype, count));
}

/* Intermediate values of a LAYER_NORM (keepdims), built as its expansion builds them, so that both
 * share the nodes. */
typedef struct tci_rule_norm {
    tc_dtype t;
    int *axes, *others; /* the normalized ones, and the rest */
    int n_axes, n_others;
    tci_node *grad;   /* of the result */
    tci_node *scaled; /* times the weight */
    tci_node *centred, *variance /* + eps */, *scale;
} tci_rule_norm;

static tci_rule_norm tci_rule_norm_of(const tci_vjp *v)
{
    const tci_node *n = v->n;
    tci_rule_norm r = {.t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute};
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, n->rank);
    r.axes = TCI_NEW_ARRAY(v->s, int, n->rank);
    r.others = TCI_NEW_ARRAY(v->s, int, n->rank);
    for (int i = 0; i < n->rank; i++) {
        bool normalized = r.n_axes < n->attr[0] && n->attr[1 + r.n_axes] == i;
        shape[i] = normalized ? n->shape[i] : 1;
        *(normalized ? &r.axes[r.n_axes++] : &r.others[r.n_others++]) = i;
    }
    tci_node *x = tci_vjp_built(v, tci_build_cast(v->g, n->in[0], r.t));
    tci_node *eps = tci_vjp_built(v, tci_build_cast(v->g, n->in[1], r.t));
    r.grad = r.scaled = tci_vjp_built(v, tci_build_cast(v->g, v->grad, r.t));
    if (n->attr[1 + r.n_axes]) {
        tci_node *weight = tci_vjp_built(v, tci_build_cast(v->g, n->in[2], r.t));
        weight = tci_rule_reshape(v, weight, n->rank, shape);
        r.scaled = tci_rule_binary(v, TCI_OP_MUL, r.grad, weight);
    }
    r.centred = tci_rule_binary(v, TCI_OP_SUB, x, tci_rule_mean(v, x, r.axes, r.n_axes));
    tci_node *squares = tci_vjp_built(v, tci_build_ew(v->g, TCI_OP_SQUARE, &r.centred));
    r.variance = tci_rule_binary(v, TCI_OP_ADD, tci_rule_mean(v, squares, r.axes, r.n_axes), eps);
    r.scale = tci_vjp_built(v, tci_build_ew(v->g, TCI_OP_RSQRT, &r.variance));
    return r;
}

/* With c = x - mean, s = 1 / sqrt(var + eps), h = grad weight - its mean:
 *   x       s (h - c mean(h c) / (var + eps))
 *   eps     -1/2 sum(h c s) / (var + eps)
 *   weight  sum(grad c s) over the axes that are not normalized; bias: sum(grad) */
static tci_node *tci_vjp_LAYER_NORM(const tci_vjp *v)
{
    tci_rule_norm m = tci_rule_norm_of(v);
    const tci_node *in = v->n->in[v->which];
    tci_node *r;
    if (v->which >= 2) {
        bool is_weight = v->which == 2 && v->n->attr[1 + m.n_axes];
        r = is_weight ? tci_rule_binary(v, TCI_OP_MUL, m.centred, m.scale) : NULL;
        r = is_weight ? tci_rule_binary(v, TCI_OP_MUL, m.grad, r) : m.grad;
        r = tci_rule_sum(v, r, m.others, m.n_others, false);
        return tci_build_cast(v->g, r, (tc_dtype)in->dtype);
    }
    tci_node *mean = tci_rule_mean(v, m.scaled, m.axes, m.n_axes);
    tci_node *h = tci_rule_binary(v, TCI_OP_SUB, m.scaled, mean);
    tci_node *hc = tci_rule_binary(v, TCI_OP_MUL, h, m.centred);
    if (v->which) {
        tci_node *half = tci_rule_number(v, m.t, -0.5);
        r = tci_rule_binary(v, TCI_OP_MUL, hc, m.scale);
        r = tci_rule_binary(v, TCI_OP_DIV, tci_rule_binary(v, TCI_OP_MUL, r, half), m.variance);
        tc_axes all = {NULL, 0, true};
        r = tci_build_reduce(v->g, TCI_OP_SUM, r, all, false);
        return tci_build_cast(v->g, r, (tc_dtype)in->dtype);
    }
    r = tci_rule_binary(v, TCI_OP_DIV, tci_rule_mean(v, hc, m.axes, m.n_axes), m.variance);
    r = tci_rule_binary(v, TCI_OP_SUB, h, tci_rule_binary(v, TCI_OP_MUL, m.centred, r));
    r = tci_rule_binary(v, TCI_OP_MUL, m.scale, r);
    return tci_build_cast(v->g, r, (tc_dtype)in->dtype);
}

/* (softmax - 1 at the target) grad / count */
static tci_node *tci_vjp_CROSS_ENTROPY(const tci_vjp *v)
{
    tci_node *x = v->n->in[0], *target = v->n->in[1];
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)x->dtype)->compute;
    int axis = x->rank > 1 ? 1 : 0;
    tci_node *p = tci_build_softmax(v->g, tci_build_cast(v->g, x, t), axis, false);
    tci_node *one = tci_rule_number(v, t, 1);
    tci_node *count = tci_rule_size(v, t, tci_node_count(target));
    tci_node *line = tci_vjp_built(v, tci_build_unsqueeze(v->g, target, axis));
    tci_node *hits = tci_rule_hits(v, line, x->rank, x->shape, axis);
    tci_node *off = tci_build_where(v->g, hits, tci_rule_binary(v, TCI_OP_SUB, p, one), p);
    tci_node *grad = tci_vjp_built(v, tci_build_cast(v->g, v->grad, t));
    tci_node *r = tci_rule_binary(v, TCI_OP_MUL, off, tci_rule_binary(v, TCI_OP_DIV, grad, count));
    return tci_build_cast(v->g, r, (tc_dtype)x->dtype);
}

static tci_node *tci_vjp_CUSTOM(const tci_vjp *v)
{
    const tci_custom *c = tci_custom_get(v->n->attr[0]);
    bool none = false;
    if (!c->vjp) {
        tci_scratch_fail(v->s, TC_ERR_UNSUPPORTED,
                         "custom op '%.60s' has no gradient: its vjp is "
                         "NULL",
                         c->op.name);
    }
    tci_node *grad = c->vjp(c, v->g, v->n, v->grad, v->which, &none);
    const tci_node *x = v->n->in[v->which];
    return none ? tci_build_broadcast(v->g, tci_rule_number(v, (tc_dtype)x->dtype, 0), x->rank,
                                      x->shape)
                : grad;
}

/* Of their first operands. */
static tci_node *tci_vjp_BARRIER(const tci_vjp *v)
{
    return v->grad;
}
static tci_node *tci_vjp_WITH_DERIVATIVE(const tci_vjp *v)
{
    return v->grad;
}

static tci_node *tci_vjp_NAMED(const tci_vjp *v)
{
    return v->grad;
}

/* Split over the same communicators. */
static tci_node *tci_vjp_SHARD(const tci_vjp *v)
{
    return tci_vjp_built(v, tci_build_node(v->g, TCI_OP_SHARD, (tc_dtype)v->grad->dtype,
                                           v->grad->rank, v->grad->shape, 1,
                                           (tci_node *const *)&v->grad, v->n->n_attr, v->n->attr));
}

TCI_FN tci_node *tci_vjp_own(const tci_vjp *v)
{
#define TCI_VJP_CALL_OWN(op, call)                                                                 \
    case op:                                                                                       \
        r = call(v);                                                                               \
        break;
#define TCI_VJP_CALL_LEAF(op, call)
#define TCI_VJP_CALL_NONE(op, call)
#define TCI_VJP_CALL_EXPANSION(op, call)
#define TCI_VJP_CALL_FLAT(op, call)
    tci_node *r = NULL;
    switch (v->n->op) {
#define TCI_ROW(id, name, least, most, facts, attributes, gradient, doc)                           \
    TCI_VJP_CALL_##gradient(TCI_OP_##id, tci_vjp_##id)
        TCI_SPECIAL_OPS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(id, name, least, most, attributes, gradient, doc)                                  \
    TCI_VJP_CALL_##gradient(TCI_OP_##id, tci_vjp_##id)
        TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    }
#undef TCI_VJP_CALL_OWN
#undef TCI_VJP_CALL_LEAF
#undef TCI_VJP_CALL_NONE
#undef TCI_VJP_CALL_EXPANSION
#undef TCI_VJP_CALL_FLAT
    return tci_vjp_built(v, r);
}
