/* grad/lu_cholesky.c - VJP rules of LU and Cholesky factorizations and of triangular solves.
 *
 * In: a node of a row that ops/lu_cholesky.c expands, and its gradient. Out: those of its operands,
 * in closed form: products, and triangular solves with the existing factors. The gradient of a
 * solve is one more solve, so nothing is factored again. Key identity: between the inverse factors
 * stands a product such as L^T dL, and only one triangle of it is kept. */
#include "grad.h"

#include "../ops/composite.h"

static tci_node *tci_linear_turned(const tci_vjp *v, tci_node *x)
{
    return tci_vjp_built(v, tci_build_transpose(v->g, x, -1, -2));
}

static tci_node *tci_linear_product(const tci_vjp *v, tci_node *a, tci_node *b)
{
    return tci_vjp_built(v, tci_build_matmul(v->g, a, b));
}

static tci_node *tci_linear_lower(const tci_vjp *v, tci_node *x, int64_t offset)
{
    return tci_vjp_built(v, tci_build_triangle(v->g, x, offset, true));
}

static tci_node *tci_linear_upper(const tci_vjp *v, tci_node *x)
{
    return tci_vjp_built(v, tci_build_triangle(v->g, x, 0, false));
}

static tci_node *tci_linear_solved(const tci_vjp *v, tci_node *a, tci_node *b, bool upper,
                                   bool left, bool unit)
{
    return tci_vjp_built(v, tci_build_solve_triangular(v->g, a, b, upper, left, unit));
}

static tci_node *tci_linear_half(const tci_vjp *v, tci_node *a, tci_node *b)
{
    tci_node *half = tci_composite_number(v->g, (tc_dtype)a->dtype, 0.5);
    a = tci_composite_binary(v->g, TCI_OP_ADD, a, b);
    return tci_vjp_built(v, tci_composite_binary(v->g, TCI_OP_MUL, a, half));
}

/* L' dL below the diagonal and dU U' from it on, with inverses of L' and U' on both sides; its rows
 * where those of x were. */
TCI_FN tci_node *tci_vjp_LU(const tci_vjp *v)
{
    tci_graph *g = v->g;
    tci_node *x = v->n->in[0], *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
    const tci_dim n = x->shape[x->rank - 1];
    tci_node *lu = tci_vjp_built(v, tci_build_slice(g, v->n, -2, 0, n, 1));
    tci_node *grad = tci_vjp_built(v, tci_build_slice(g, v->grad, -2, 0, n, 1));
    tci_node *below = tci_linear_lower(v, grad, -1), *turned = tci_linear_turned(v, lu);
    below = tci_composite_binary(
        g, TCI_OP_ADD, below,
        tci_linear_product(v, tci_linear_turned(v, tci_linear_lower(v, lu, -1)), below));
    tci_node *above = tci_linear_product(v, tci_linear_upper(v, grad),
                                         tci_linear_turned(v, tci_linear_upper(v, lu)));
    tci_node *r = tci_composite_binary(g, TCI_OP_ADD, tci_linear_lower(v, below, -1),
                                       tci_linear_upper(v, above));
    r = tci_linear_solved(v, turned, r, true, true, true);
    r = tci_linear_solved(v, turned, r, false, false, false);
    tci_node *order = tci_build_slice(g, v->n, -2, n, tci_dim_add(n, 1), 1);
    order = tci_build_transpose(g, tci_build_cast(g, order, TC_I64), -1, -2);
    order = tci_vjp_built(v, tci_build_broadcast(g, order, x->rank, x->shape));
    zero = tci_build_broadcast(g, zero, x->rank, x->shape);
    return tci_build_scatter(g, zero, x->rank - 2, order, r, TCI_MODE_SET);
}

/* b's: a solution by the transpose, w. a's: -w x', transposed where a was. Its LU is given. */
TCI_FN tci_node *tci_vjp_SOLVE(const tci_vjp *v)
{
    tci_graph *g = v->g;
    const bool transposed = v->n->attr[0] != 0;
    tci_node *lu = v->n->in[1];
    if (v->which == 1) {
        return tci_build_broadcast(g, tci_composite_number(g, (tc_dtype)lu->dtype, 0), lu->rank,
                                   lu->shape);
    }
    tci_node *w = tci_vjp_built(v, tci_build_solved(g, v->n->in[0], lu, v->grad, !transposed));
    if (v->which == 2) {
        return w;
    }
    tci_node *r = transposed ? tci_linear_product(v, v->n, tci_linear_turned(v, w))
                             : tci_linear_product(v, w, tci_linear_turned(v, v->n));
    return tci_composite_unary(g, TCI_OP_NEG, r);
}

TCI_FN tci_node *tci_vjp_SOLVE_TRIANGULAR(const tci_vjp *v)
{
    const bool unit = v->n->attr[0] != 0;
    tci_node *turned = tci_linear_turned(v, v->n->in[0]);
    tci_node *w = tci_linear_solved(v, turned, v->grad, true, true, unit);
    if (v->which) {
        return w;
    }
    tci_node *r = tci_linear_product(v, w, tci_linear_turned(v, v->n));
    return tci_composite_unary(v->g, TCI_OP_NEG, tci_linear_lower(v, r, unit ? -1 : 0));
}

/* L' dL, its lower half, with inverses of L' and L on both sides; and the same transposed. */
TCI_FN tci_node *tci_vjp_CHOLESKY(const tci_vjp *v)
{
    tci_node *l = v->n, *turned = tci_linear_turned(v, l);
    tci_node *r = tci_linear_product(v, turned, tci_linear_lower(v, v->grad, 0));
    r = tci_linear_half(v, tci_linear_lower(v, r, 0), tci_linear_lower(v, r, -1));
    r = tci_linear_solved(v, turned, r, true, true, false);
    r = tci_linear_solved(v, l, r, false, false, false);
    return tci_linear_half(v, r, tci_linear_turned(v, r));
}
