/* grad/product_reduction.c - gradients of products (PROD, and SCAN and SCATTER of mode MUL), also
 * where factors are 0.
 *
 * In: a node and the gradient of its result. Out: the gradient of an operand.
 *
 * Design: the gradient of a factor is the product of the other factors, for which there are two
 * expressions. Division (the whole product over the factor, or the product with 1 in place of the
 * only zero) is cheap, but it is a constant 0 where another factor is 0, and the derivative of
 * that constant is wrong. The product of all factors before times all factors after the factor is a
 * polynomial, whose derivatives of every order are right. The value comes from the first expression
 * and the derivatives from the second (WITH_DERIVATIVE). */
#include "grad.h"

#include "../graph/loop_node.h"
#include "../ops/composite.h"

static tci_node *tci_product_binary(const tci_vjp *v, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_vjp_built(v, tci_build_ew(v->g, op, in));
}

static tci_node *tci_product_where(const tci_vjp *v, tci_node *c, tci_node *a, tci_node *b)
{
    return tci_vjp_built(v, tci_build_where(v->g, c, a, b));
}

static tci_node *tci_product_number(const tci_vjp *v, int dtype, double x)
{
    return tci_vjp_built(v, tci_composite_number(v->g, (tc_dtype)dtype, x));
}

static tci_node *tci_product_scan(const tci_vjp *v, tci_node *x, int axis, bool reverse,
                                  tci_mode mode)
{
    return tci_vjp_built(v, tci_build_scan(v->g, x, axis, reverse, mode));
}

static tci_node *tci_product_gather(const tci_vjp *v, tci_node *x, int axis, tci_node *index)
{
    return tci_vjp_built(v, tci_build_gather(v->g, x, axis, index));
}

static tci_node *tci_product_scatter(const tci_vjp *v, tci_node *x, int axis, tci_node *index,
                                     tci_node *src, tci_mode mode)
{
    return tci_vjp_built(v, tci_build_scatter(v->g, x, axis, index, src, mode));
}

static tci_node *tci_product_fill(const tci_vjp *v, tci_node *number, const tci_node *like)
{
    return tci_vjp_built(v, tci_build_broadcast(v->g, number, like->rank, like->shape));
}

/* x with 1 where it is 0. */
static tci_node *tci_product_nonzero(const tci_vjp *v, tci_node *x, tci_node *is_zero)
{
    return tci_product_where(v, is_zero, tci_product_number(v, x->dtype, 1), x);
}

/* Along the axis element i is x's element i - 1, or i + 1 if `back`; the one that x lacks is
 * `fill`. */
static tci_node *tci_product_shift(const tci_vjp *v, tci_node *x, int axis, bool back,
                                   tci_node *fill)
{
    tci_dim before = back ? -1 : 1;
    return tci_vjp_built(v, tci_build_pad(v->g, x, axis, before, tci_dim_neg(before), fill));
}

/* Axis `axis` first, the others in their order; or from there back to its position. */
static tci_node *tci_product_turn(const tci_vjp *v, tci_node *x, int axis, bool back)
{
    int *order = TCI_NEW_ARRAY(v->s, int, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int to = i == axis ? 0 : i + (i < axis);
        order[back ? i : to] = back ? to : i;
    }
    return tci_vjp_built(v, tci_build_permute(v->g, x, x->rank, order));
}

/* h with h[i] = a[i] h[i - 1] + b[i] along the axis, or h[i + 1] if `back`, from h = 0 on: a
 * loop, step by step. */
static tci_node *tci_product_recurrence(const tci_vjp *v, tci_node *a, tci_node *b, int axis,
                                        bool back)
{
    if (tci_dim_le(a->shape[axis], 1)) {
        return b;
    }
    tci_node *xs[2] = {tci_product_turn(v, a, axis, false), tci_product_turn(v, b, axis, false)};
    tci_node *x[2], *carry, *next, *init = tci_product_number(v, a->dtype, 0);
    const int rank = a->rank - 1;
    const tci_dim *one = xs[0]->shape + 1;
    for (int i = 0; i < 2; i++) {
        x[i] = tci_vjp_built(v, tci_build_bound(v->g, (tc_dtype)a->dtype, rank, one));
    }
    init = tci_vjp_built(v, tci_build_broadcast(v->g, init, rank, one));
    carry = tci_vjp_built(v, tci_build_bound(v->g, (tc_dtype)a->dtype, rank, one));
    next = tci_product_binary(v, TCI_OP_MUL, x[0], carry);
    next = tci_product_binary(v, TCI_OP_ADD, next, x[1]);
    const tci_repeat r = {.n_carry = 1,
                          .n_x = 2,
                          .n_y = 1,
                          .length = a->shape[axis],
                          .reverse = back,
                          .stops = -1,
                          .init = &init,
                          .xs = xs,
                          .carry = &carry,
                          .x = x,
                          .next = &next,
                          .y = &next};
    tci_node *repeat = tci_vjp_built(v, tci_build_repeat(v->s, v->g, &r));
    return tci_product_turn(v, tci_vjp_built(v, tci_build_result(v->g, repeat, 1)), axis, true);
}

static tci_node *tci_product_both(const tci_vjp *v, tci_node *exact, tci_node *value)
{
    return tci_vjp_built(v, tci_build_with_derivative(v->g, exact, value));
}

/* ---- of whole axes ---- */

/* x with the axes of the reduction v->n as one, the last, or back from there. */
static tci_node *tci_product_line(const tci_vjp *v, tci_node *x, bool back)
{
    const tci_node *whole = v->n->in[0];
    int *order = TCI_NEW_ARRAY(v->s, int, whole->rank);
    int *from = TCI_NEW_ARRAY(v->s, int, whole->rank);
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, whole->rank + 1), n = 1;
    int kept = 0, folded = whole->rank - v->n->n_attr;
    for (int i = 0, k = 0; i < whole->rank; i++) {
        bool reduced = k < v->n->n_attr && v->n->attr[k] == i;
        int to = reduced ? folded++ : kept++;
        k += reduced;
        order[to] = i;
        from[i] = to;
    }
    for (int i = 0; i < whole->rank; i++) {
        n = i < kept ? n : tci_dim_mul(n, whole->shape[order[i]]);
        shape[i] = whole->shape[order[i]];
    }
    if (back) {
        x = tci_vjp_built(v, tci_build_reshape(v->g, x, whole->rank, shape));
        return tci_vjp_built(v, tci_build_permute(v->g, x, whole->rank, from));
    }
    shape[kept] = n;
    x = tci_vjp_built(v, tci_build_permute(v->g, x, whole->rank, order));
    return tci_vjp_built(v, tci_build_reshape(v->g, x, kept + 1, shape));
}

TCI_FN tci_node *tci_product_others(const tci_vjp *v, tci_node *x, tci_node *value)
{
    tci_node *line = tci_product_line(v, x, false), *one = tci_product_number(v, x->dtype, 1);
    tci_node *sides[2];
    const int last = line->rank - 1;
    for (int i = 0; i < 2; i++) {
        sides[i] = tci_product_scan(v, line, last, i, TCI_MODE_MUL);
        sides[i] = tci_product_shift(v, sides[i], last, i, one);
    }
    tci_node *exact = tci_product_binary(v, TCI_OP_MUL, sides[0], sides[1]);
    return tci_product_both(v, tci_product_line(v, exact, true), value);
}

/* ---- running ---- */

/* The product before the element times the gradient of the product after it, from all results from
 * there on: s[i] = grad[i] + x[i + 1] s[i + 1]. */
static tci_node *tci_product_running_exact(const tci_vjp *v, int axis, bool reverse)
{
    tci_node *x = v->n->in[0], *one = tci_product_number(v, x->dtype, 1);
    tci_node *after = tci_product_shift(v, x, axis, !reverse, one);
    after = tci_product_recurrence(v, after, v->grad, axis, !reverse);
    tci_node *before = tci_product_shift(v, v->n, axis, reverse, one);
    return tci_product_binary(v, TCI_OP_MUL, before, after);
}

/* Before the first zero the sum of the results from there on over the element, at it what they are
 * with 1 in its place, after it 0. */
TCI_FN tci_node *tci_product_running(const tci_vjp *v)
{
    const int axis = (int)tci_dim_known(v->n->attr[0]);
    const bool reverse = v->n->attr[1] != 0;
    tci_node *x = v->n->in[0], *zero = tci_product_number(v, x->dtype, 0);
    tci_node *is_zero = tci_product_binary(v, TCI_OP_EQ, x, zero);
    tci_node *count = tci_vjp_built(v, tci_build_cast(v->g, is_zero, TC_I64));
    count = tci_product_scan(v, count, axis, reverse, TCI_MODE_ADD);
    tci_node *none = tci_product_binary(v, TCI_OP_EQ, count, tci_product_number(v, TC_I64, 0));
    tci_node *first = tci_product_binary(v, TCI_OP_EQ, count, tci_product_number(v, TC_I64, 1));
    first = tci_product_binary(v, TCI_OP_LOGICAL_AND, first, is_zero);
    tci_node *with = tci_product_nonzero(v, x, first);
    with = tci_product_scan(v, with, axis, reverse, TCI_MODE_MUL);
    with = tci_product_binary(v, TCI_OP_MUL, with, v->grad);
    with = tci_product_scan(v, with, axis, !reverse, TCI_MODE_ADD);
    tci_node *all = tci_product_binary(v, TCI_OP_MUL, v->n, v->grad);
    all = tci_product_scan(v, all, axis, !reverse, TCI_MODE_ADD);
    all = tci_product_binary(v, TCI_OP_DIV, all, tci_product_nonzero(v, x, is_zero));
    with = tci_product_where(v, first, with, zero);
    tci_node *value = tci_product_where(v, none, all, with);
    return tci_product_both(v, tci_product_running_exact(v, axis, reverse), value);
}

/* ---- at indices ---- */

/* v->n's index with positions counted from the front of the axis. */
static tci_node *tci_product_places(const tci_vjp *v, int axis)
{
    tci_node *index = tci_vjp_built(v, tci_build_cast(v->g, v->n->in[1], TC_I64));
    tci_node *size = tci_vjp_built(v, tci_build_size_value(v->g, v->n->shape[axis], TC_I64));
    tci_node *from_end = tci_product_binary(v, TCI_OP_LT, index, tci_product_number(v, TC_I64, 0));
    return tci_product_where(v, from_end, tci_product_binary(v, TCI_OP_ADD, index, size), index);
}

/* Of each element of src the product of the others of its place: in the order of their positions,
 * what is before it of its position times what is after it. */
static tci_node *tci_product_of_place(const tci_vjp *v, int axis)
{
    tci_node *src = v->n->in[2], *places = tci_product_places(v, axis), *sides[2];
    tci_node *zero = tci_product_number(v, src->dtype, 0);
    tci_node *one = tci_product_number(v, src->dtype, 1), *none = tci_product_number(v, TC_I64, -1);
    tci_node *order = tci_vjp_built(v,
                                    tci_build_topk(v->g, places, axis, places->shape[axis], false));
    places = tci_product_gather(v, places, axis, order);
    src = tci_product_gather(v, src, axis, order);
    for (int i = 0; i < 2; i++) {
        tci_node *next = tci_product_shift(v, places, axis, i, none);
        tci_node *ends = tci_product_binary(v, TCI_OP_NE, places, next);
        next = tci_product_shift(v, src, axis, i, one);
        sides[i] = tci_product_recurrence(v, tci_product_where(v, ends, zero, next),
                                          tci_product_where(v, ends, one, zero), axis, i);
    }
    src = tci_product_binary(v, TCI_OP_MUL, sides[0], sides[1]);
    return tci_product_scatter(v, tci_product_fill(v, zero, src), axis, order, src, TCI_MODE_SET);
}

static tci_node *tci_product_scattered_exact(const tci_vjp *v, int axis)
{
    const tci_node *n = v->n;
    if (v->which == 0) {
        tci_node *ones = tci_product_fill(v, tci_product_number(v, n->dtype, 1), n);
        ones = tci_product_scatter(v, ones, axis, n->in[1], n->in[2], TCI_MODE_MUL);
        return tci_product_binary(v, TCI_OP_MUL, v->grad, ones);
    }
    tci_node *own = tci_product_binary(v, TCI_OP_MUL, v->grad, n->in[0]);
    own = tci_product_gather(v, own, axis, n->in[1]);
    return tci_product_binary(v, TCI_OP_MUL, own, tci_product_of_place(v, axis));
}

/* The product of the other factors, which is 0 where one of them is. */
TCI_FN tci_node *tci_product_scattered(const tci_vjp *v)
{
    const tci_node *n = v->n;
    const int axis = (int)n->attr[0];
    tci_node *zero = tci_product_number(v, n->dtype, 0), *zeros[2], *counts[2], *few;
    for (int i = 0; i < 2; i++) {
        zeros[i] = tci_product_binary(v, TCI_OP_EQ, n->in[2 * i], zero);
        counts[i] = tci_vjp_built(v, tci_build_cast(v->g, zeros[i], TC_I64));
    }
    tci_node *count = tci_product_scatter(v, counts[0], axis, n->in[1], counts[1], TCI_MODE_ADD);
    tci_node *rest = tci_product_scatter(v, tci_product_nonzero(v, n->in[0], zeros[0]), axis,
                                         n->in[1], tci_product_nonzero(v, n->in[2], zeros[1]),
                                         TCI_MODE_MUL);
    rest = tci_product_binary(v, TCI_OP_MUL, rest, v->grad);
    bool src = v->which != 0;
    few = src ? tci_product_gather(v, count, axis, n->in[1]) : count;
    few = tci_product_binary(v, TCI_OP_EQ, few, counts[src]);
    rest = src ? tci_product_gather(v, rest, axis, n->in[1]) : rest;
    rest = tci_product_binary(v, TCI_OP_DIV, rest,
                              tci_product_nonzero(v, n->in[v->which], zeros[src]));
    tci_node *value = tci_product_where(v, few, rest, zero);
    return tci_product_both(v, tci_product_scattered_exact(v, axis), value);
}
