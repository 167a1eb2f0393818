/* grad/grad.h - gradients as ordinary nodes of the same graph: they fuse, compile and can be
 * differentiated again like any other node.
 *
 *   vjp.c                  vector-Jacobian products from the gradient columns of ops/table.h
 *   rules.c                gradient rules of rows marked OWN: movement ops, contractions,
 *                          composites
 *   product_reduction.c    gradients of products whose factors may be 0
 *   special_derivatives.c  derivatives that are not one formula of ops/table.h
 *   loop.c                 gradient of a loop (REPEAT node): a loop in reverse order
 *   grad.c                 the traversal from the loss back to the requested nodes
 *   to_f64.c               a graph rebuilt in f64, where finite differences are accurate enough for
 *                          tests
 *   jvp.c                  forward mode: tangents of results from tangents of inputs */
#ifndef TCI_GRAD_GRAD_H
#define TCI_GRAD_GRAD_H

#include "../graph/build.h"
#include "../graph/side_table.h"
#include "../ops/custom_op.h"
#include "../ops/formula_bytecode.h"

/* Operand `which` of n, whose result has gradient `grad` (n's shape and dtype). */
typedef struct tci_vjp {
    tci_scratch *s; /* builders that fail longjmp through it */
    tci_graph *g;
    tci_node *n;
    int which;
    tci_node *grad;
} tci_vjp;
/* n itself; longjmps with the graph's error on NULL. */
TCI_FN tci_node *tci_vjp_built(const tci_vjp *v, tci_node *n);
/* The operand's gradient from this use of it: the operand's shape and dtype. NULL: none. For ops
 * whose gradient is a formula or their own only. */
TCI_FN tci_node *tci_vjp_operand(const tci_vjp *v);
TCI_FN tci_node *tci_vjp_own(const tci_vjp *v);
/* n is the MAX of a WINDOW over its elements, a pool: as in torch, only the first of equal elements
 * takes the gradient. NULL: it is not of that kind. */
TCI_FN tci_node *tci_vjp_pool(const tci_vjp *v);
/* n is a CONTRACT whose operand is a WINDOW: the gradient of the window's input as one contraction
 * over windows of n's gradient (a transposed convolution), without the operand's own, which is
 * larger by the window's size. NULL: the labels are not of that kind. */
TCI_FN tci_node *tci_vjp_through_window(const tci_vjp *v);

/* grad/special_derivatives.c: derivatives of rows at x, in x's dtype; y: the row's value. NULL in,
 * NULL out. */
TCI_FN tci_node *tci_slope_of_trigamma(tci_graph *g, tci_node *x);
TCI_FN tci_node *tci_slope_of_sinc(tci_graph *g, tci_node *x, tci_node *y);
/* t: what gelu's result is rounded to. */
TCI_FN tci_node *tci_slope_of_gelu(tci_graph *g, tci_node *x, tc_dtype t);

/* grad/lu_cholesky.c: rules of rows */
TCI_FN tci_node *tci_vjp_LU(const tci_vjp *v);
TCI_FN tci_node *tci_vjp_SOLVE(const tci_vjp *v);
TCI_FN tci_node *tci_vjp_SOLVE_TRIANGULAR(const tci_vjp *v);
TCI_FN tci_node *tci_vjp_CHOLESKY(const tci_vjp *v);

/* grad/collective.c: rule of the row */
TCI_FN tci_node *tci_vjp_COLLECTIVE(const tci_vjp *v);

/* grad/product_reduction.c: of a SCAN and a SCATTER of mode MUL */
TCI_FN tci_node *tci_product_running(const tci_vjp *v);
TCI_FN tci_node *tci_product_scattered(const tci_vjp *v);
/* n is a PROD of x (cast or not), value the product of the elements but each one: the same with
 * derivatives. */
TCI_FN tci_node *tci_product_others(const tci_vjp *v, tci_node *x, tci_node *value);

/* n is a REPEAT: given[i] for each operand outside of its body from the gradients of its results;
 * NULL where leads[i] is not set, or it is no float. takers[i]: the node that given[i] is the
 * gradient of: the operand, or of a held one a node that it is movement of; where several operands
 * have one taker, given of the first is that of all. grads: NULL where a result has none. */
TCI_FN void tci_grad_of_repeat(const tci_vjp *v, const bool *leads, tci_node *const *takers,
                               tci_node *const *grads, tci_node **given);

/* Floats, each paired with a node of its shape and dtype: its gradient, or its tangent. */
typedef struct tci_grad_pairs {
    tci_node *const *nodes, *const *with;
    int n;
} tci_grad_pairs;

/* Gradients of the roots, given their own, for each of wanted (distinct or not; inputs of each
 * other or not). grads[i] NULL: no root depends on it. Linear in the nodes between; no recursion
 * but for composites inside composites. Longjmps on failure, and with TC_ERR_UNSUPPORTED at an op
 * without a gradient. */
TCI_FN void tci_grad_build(tci_scratch *s, tci_graph *g, tci_grad_pairs roots,
                           tci_node *const *wanted, int n, tci_node **grads);
/* The same of one node for its own operands. */
TCI_FN void tci_grad_of_operands(tci_scratch *s, tci_graph *g, tci_node *n, tci_node *grad,
                                 tci_node **grads);

/* Tangents of n roots where the inputs have theirs: the transpose of tci_grad_build, so an input
 * that depends on another has its tangent and what it takes from the other's. tangents[i] NULL: the
 * root depends on no input. Longjmps as above. */
TCI_FN void tci_jvp_build(tci_scratch *s, tci_graph *g, tci_grad_pairs inputs,
                          tci_node *const *roots, int n, tci_node **tangents);

/* grad/to_f64.c: root in f64. wide: of tci_node *; holds the leaves that stand for nodes, then what
 * each node of the list that is returned, inputs first, is in f64. */
TCI_FN tci_node_list tci_widen_build(tci_scratch *s, tci_graph *g, tci_node *root, tci_table *wide);

#endif
