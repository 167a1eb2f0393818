/* plan/int8_dot.c - prepares int8 and int16 dot products (VNNI): operand layout, sign correction,
 * and zero points as separate sums.
 *
 * In: an i32 CONTRACT of operands converted from 8- or 16-bit integers. Out: the number of products
 * per lane and instruction, and the same sums with one unsigned and one signed 8-bit operand, as
 * VPDPBUSD needs them (four products per lane). A matrix unit takes the operands as they are.
 *
 * Design: all sums are exact modulo 2^32. If both operands are signed,
 *
 *     sum a b  =  sum (a + 128) b  -  128 sum b
 *
 * where a + 128 is an unsigned byte, a with its highest bit flipped (loop/dot_packing.c); if both
 * are unsigned, a - 128 is a signed byte and the last sum is added. The separate sum is over the
 * cheaper operand: one that is constant across runs is summed once, else the one with fewer
 * elements. The same serves zero points, values of any size that are constant along the summed
 * axes:
 *
 *     sum (a - y) (b - z)  =  sum a b  -  y sum (b - z)  -  z sum a */
#include "contraction_route.h"

enum { TCI_INT8_REUSE = 16 /* products for each element of a separate sum, at least */ };

/* By a device's, or those of its warps (kernel/match_mma_sync.c)? */
static bool tci_int8_on_device(const tci_contraction *c, const tci_machine *machine)
{
    return machine->block_threads > 0 &&
           (machine->matrix_units > 0 || (machine->warp_unit & TC_WARP_BYTES)) &&
           tci_dtype_get(tci_int8_source(c->n->in[0]))->bytes == 1 &&
           tci_dtype_get(tci_int8_source(c->n->in[1]))->bytes == 1 &&
           tci_int8_for_unit(c, TCI_GATHER_SIDE);
}

/* ---- separate sums ---- */

/* The sums of x, of the axes of operand `which`, over what is summed; or (is_same) what has one
 * element there. With an axis for each one of the result. */
static tci_node *tci_int8_sums(const tci_algo *a, const tci_node *n, int which, tci_node *x,
                               bool is_same)
{
    int all = x->rank, rank = 0, n_axes = 0;
    int64_t *axes = TCI_NEW_ARRAY(a->s, int64_t, all + 1);
    int64_t *left = TCI_NEW_ARRAY(a->s, int64_t, all + 1); /* axes of x */
    tci_dim *kept = TCI_NEW_ARRAY(a->s, tci_dim, all + 1);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, n->rank + 1);
    for (int i = 0; i < all; i++) {
        if (tci_contract_sums_axis(n, which, i)) {
            axes[n_axes++] = i;
        } else {
            left[rank] = i;
            kept[rank++] = x->shape[i];
        }
    }
    x = is_same ? tci_graph_node(a->g, TCI_OP_RESHAPE, TC_I32, rank, kept, 1, &x, 0, NULL)
                : tci_graph_node(a->g, TCI_OP_SUM, TC_I32, rank, kept, 1, &x, n_axes, axes);
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, rank + 1);
    tci_dim *turned = TCI_NEW_ARRAY(a->s, tci_dim, rank + 1);
    for (int i = 0, at = 0; i < n->rank; i++) {
        int axis = tci_build_label(left, rank, tci_contract_place(n, 2, i, which));
        shape[i] = axis < 0 ? 1 : kept[axis];
        if (axis >= 0) {
            turned[at] = kept[axis];
            order[at++] = axis;
        }
    }
    x = tci_graph_node(a->g, TCI_OP_PERMUTE, TC_I32, rank, turned, 1, &x, rank, order);
    return tci_graph_node(a->g, TCI_OP_RESHAPE, TC_I32, n->rank, shape, 1, &x, 0, NULL);
}

static tci_node *tci_int8_ew(const tci_algo *a, int op, tci_node *x, tci_node *y)
{
    tci_node *in[2] = {x, y};
    return tci_build_ew(a->g, op, in);
}

/* ---- signs ---- */

static double tci_int8_sum_cost(const tci_algo *a, const tci_node *x)
{
    double from = 0;
    return tci_plan_is_fixed(a, x, &from) ? 0 : (double)tci_dim_hint(tci_node_count(x));
}

TCI_FN tci_node *tci_plan_signs(const tci_algo *a, tci_node *n)
{
    const tci_contraction *c = tci_contraction_of(a->s, n);
    tc_dtype t = tci_plan_points(c, &a->machine) == 4 ? tci_int8_source(n->in[0]) : TC_I32;
    if (t == TC_I32 || t != tci_int8_source(n->in[1]) || tci_plan_any_signs(c, &a->machine)) {
        return n;
    }
    double cost[2] = {tci_int8_sum_cost(a, n->in[0]), tci_int8_sum_cost(a, n->in[1])};
    int changed = cost[1] <= cost[0] ? 0 : 1;
    if (TCI_INT8_REUSE * cost[1 - changed] > c->products) {
        return n;
    }
    tci_value by = {.i = t == TC_I8 ? 128 : -128};
    tci_node *more = tci_graph_const(a->g, TC_I32, by), *in[2] = {n->in[0], n->in[1]};
    tci_node *sum = tci_int8_sums(a, n, 1 - changed, in[1 - changed], false);
    in[changed] = tci_int8_ew(a, TCI_OP_ADD, in[changed], more);
    sum = tci_int8_ew(a, TCI_OP_MUL, sum, more);
    return tci_int8_ew(a, TCI_OP_SUB, tci_contract_of(a->g, n, TC_I32, in), sum);
}

/* ---- zero points ---- */

/* True if z, of an operand, is constant along axis i of the operand. */
static bool tci_int8_is_same(const tci_node *z, int i)
{
    return z->in[0]->rank == 0 || z->in[0]->shape[i] == 1;
}

/* Operand `which` is, but for the order of its axes, the difference of what it widens and of what
 * is expanded along all that is summed: the former, or (zero) what is expanded; NULL: it is none.
 */
static tci_node *tci_int8_part(const tci_algo *a, const tci_node *n, int which, bool zero)
{
    tci_node *x = n->in[which];
    const tci_node *turned = x->op == TCI_OP_PERMUTE ? x : NULL;
    x = turned ? x->in[0] : x;
    tci_node *z = x->op == TCI_OP_SUB ? x->in[1] : NULL;
    if (!z || z->op != TCI_OP_EXPAND || tci_int8_source(x->in[0]) == TC_I32 ||
        (z->in[0]->rank != 0 && z->in[0]->rank != z->rank)) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        bool summed = tci_contract_sums_axis(n, which, i);
        if (summed && !tci_int8_is_same(z, turned ? (int)turned->attr[i] : i)) {
            return NULL;
        }
    }
    x = zero ? z->in[0] : x->in[0];
    return turned && x->rank > 0 ? tci_algo_permute(a, x, turned->attr) : x;
}

/* Contraction n of integers of few bits without the zero points that are subtracted from them;
 * NULL: it has none. */
static tci_node *tci_int8_uncentred(const tci_algo *a, tci_node *n)
{
    tci_node *in[2];
    for (int i = 0; i < 2; i++) {
        tci_node *plain = tci_int8_part(a, n, i, false);
        in[i] = plain ? plain : n->in[i];
    }
    bool same = in[0] == n->in[0] && in[1] == n->in[1];
    return same ? NULL : tci_contract_of(a->g, n, TC_I32, in);
}

/* The result corrected by the zero points. */
static tci_node *tci_int8_centre(const tci_algo *a, const tci_node *n, tci_node *sums)
{
    for (int i = 0; i < 2; i++) { /* the second one next to the first one's unchanged bytes */
        tci_node *zero = tci_int8_part(a, n, i, true), *other = n->in[1 - i];
        tci_node *plain = i == 1 ? tci_int8_part(a, n, 0, false) : NULL;
        if (zero) {
            zero = zero->rank > 0 ? tci_int8_sums(a, n, i, zero, true) : zero;
            other = tci_int8_sums(a, n, 1 - i, plain ? plain : other, false);
            sums = tci_int8_ew(a, TCI_OP_SUB, sums, tci_int8_ew(a, TCI_OP_MUL, zero, other));
        }
    }
    return sums;
}

/* ---- the route ---- */

static bool tci_int8_fits(tci_offer *o)
{
    const tci_machine *m = &o->a->machine;
    tci_node *plain = o->n->dtype == TC_I32 ? tci_int8_uncentred(o->a, o->n) : NULL;
    const tci_contraction *c = plain ? tci_contraction_of(o->a->s, plain) : NULL;
    o->found = plain;
    return plain && ((m->block_threads > 0 && tci_int8_on_device(c, m)) ||
                     (tci_plan_points(c, m) > 0 && tci_route_packs(c, m)));
}

static double tci_int8_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    work.products /= 4;
    work.bytes += o->c->in[0].bytes + o->c->in[1].bytes;
    work.launches += 2;
    return tci_route_ns(o, work);
}

static tci_node *tci_int8_build(const tci_offer *o)
{
    return tci_int8_centre(o->a, o->n, o->a->router->contract(o->a, o->found));
}

TCI_FN const tci_route *tci_route_zero_points(void)
{
    static const tci_route row = {"zero points as sums", TCI_SUMS_EXACT, TCI_ROUTE_SPLITS,
                                  tci_int8_fits,         tci_int8_cost,  tci_int8_build};
    return &row;
}
