/* graph/loop_node.h - declares REPEAT, the structured loop node whose body is a subgraph (tc_scan,
 * tc_while, tc_cond, tc_checkpoint).
 *
 * Operands of a REPEAT, in order:
 *   outside  init   initial value of each carry
 *            xs     inputs: iteration i gets element i along the first axis (reverse: element
 *                   length - 1 - i)
 *            held   loop-invariant operands: the same in all iterations
 *   bound    carry, x, inner: the BOUND nodes that represent these in the body
 *   body     next   value of each carry after the iteration, of the same shape and dtype
 *            y      element that the iteration adds to each output
 * A loop with a data-dependent trip count has a 0-d bool carry, `stops`: an iteration runs only
 * while it is true, and length is the maximum number of iterations. It has no outputs, and its rows
 * are never requested.
 *
 * A body is closed: all its nodes depend on BOUND nodes of their own REPEAT. Passes treat it as
 * ordinary nodes, cache keys cover it, and the operands alone say what is evaluated outside. No
 * node of a body has a value, and no gradient is requested for one. The rewritten graph of a
 * program also has constants (LITERAL, CONST, IOTA) in bodies.
 *
 * Results, by number (RESULT): the last value of each carry; the elements of each output, stacked
 * along a new first axis at the positions of their x; the rows of each carry (length + 1 of them),
 * stacked likewise. Row i is the carry before the iteration of element i and row i + 1 the carry
 * after it (reverse: row i + 1 before, row i after). Gradients read rows. Results that nothing
 * reads are not stored. */
#ifndef TCI_GRAPH_LOOP_NODE_H
#define TCI_GRAPH_LOOP_NODE_H

#include "side_table.h"

typedef struct tci_repeat {
    int n_carry, n_x, n_held, n_y;
    tci_dim length;
    bool reverse;
    int stops; /* -1: it does not */
    tci_node *const *init, *const *xs, *const *held;
    tci_node *const *carry, *const *x, *const *inner;
    tci_node *const *next, *const *y;
} tci_repeat;

/* The parts of a REPEAT node, in its lists. */
TCI_FN tci_repeat tci_repeat_of(const tci_node *n);
/* The row of a carry before step `step`, or after this many. */
static inline tci_dim tci_repeat_row_at(const tci_repeat *r, tci_dim step)
{
    return r->reverse ? tci_dim_sub(r->length, step) : step;
}
static inline int tci_repeat_n_results(const tci_repeat *r)
{
    return 2 * r->n_carry + r->n_y;
}
/* A loop of one iteration, whatever happens: it is its body, which tci_repeat_results puts
 * in its place (a region of the graph: its gradient computes the body again). Its sizes may be
 * symbolic. */
static inline bool tci_repeat_is_once(const tci_repeat *r)
{
    return r->length == 1 && r->stops < 0;
}
/* Number of inputs of a node that are evaluated with it: for a REPEAT those outside. */
static inline int tci_node_n_outside(const tci_node *n)
{
    return n->op == TCI_OP_REPEAT ? (int)(n->attr[0] + n->attr[1] + n->attr[2]) : n->n_in;
}
/* tci_graph_sort without the bodies of loops. */
TCI_FN tci_node_list tci_graph_sort_outside(tci_scratch *s, tci_node *const *roots, int n_roots);

/* A node that a body is given. */
TCI_FN tci_node *tci_build_bound(tci_graph *g, tc_dtype dtype, int rank, const tci_dim *shape);
/* A REPEAT, with r's body closed: nodes of it that need none of its BOUND nodes are held too. The
 * xs have length elements along their first axis. NULL: next and carry differ in shape or dtype
 * (TC_ERR_SHAPE, _DTYPE), or no memory. */
TCI_FN tci_node *tci_build_repeat(tci_scratch *s, tci_graph *g, const tci_repeat *r);
/* The REPEAT n, of a program's graph, where numbers, movement and random bits that it holds are
 * computed in its body, and likewise in the bodies within; what no step reads is not held. n's
 * results are the same. Longjmps. */
TCI_FN tci_node *tci_repeat_sink(tci_scratch *s, tci_graph *g, tci_node *n);
TCI_FN tci_node *tci_build_result(tci_graph *g, tci_node *repeat, int result);
/* Results of the body of r over other nodes in place of its BOUND nodes: the next value of each
 * carry, then each output. Array in scratch. Longjmps. */
TCI_FN tci_node **tci_repeat_over_others(tci_scratch *s, tci_graph *g, const tci_repeat *r,
                                         tci_node *const *given);
/* The results of a REPEAT of one step as nodes without it. Array in scratch. Longjmps. */
TCI_FN tci_node **tci_repeat_results(tci_scratch *s, tci_graph *g, const tci_node *repeat);

#endif
