/* grad/collective.c - gradients of collectives: each is another collective.
 *
 * The differentiated loss is the sum of the losses of all ranks. A value that all ranks receive
 * therefore has as its gradient the sum of the gradients that each rank computes for it. */
#include "grad.h"

static tci_node *tci_vjp_comm(const tci_vjp *v, tc_comm_verb verb, tci_node *x)
{
    return tci_vjp_built(v, tci_build_collective_like(v->g, v->n, verb, x));
}

/* all_reduce of the sum, also where n is another reduction. */
static tci_node *tci_vjp_comm_sum(const tci_vjp *v, tci_node *x)
{
    tci_comm_step c = tci_build_comm_step(v->n);
    c.verb = TC_COMM_ALL_REDUCE;
    c.how = TC_COMM_SUM;
    return tci_vjp_built(v, tci_build_collective(v->g, &c, x));
}

static tci_node *tci_vjp_comm_op(const tci_vjp *v, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_vjp_built(v, tci_build_ew(v->g, op, in));
}

static tci_node *tci_vjp_comm_zero(const tci_vjp *v, const tci_node *like)
{
    tci_value zero = {.u = 0};
    tci_node *n = tci_vjp_built(v, tci_graph_const(v->g, (tc_dtype)like->dtype, zero));
    return tci_vjp_built(v, tci_build_broadcast(v->g, n, like->rank, like->shape));
}

/* Of equal extremes each takes its part; a NaN goes to all, as of a reduction. */
static tci_node *tci_vjp_comm_extreme(const tci_vjp *v)
{
    tci_node *x = v->n->in[0], *y = v->n;
    tci_node *zero = tci_vjp_comm_zero(v, x);
    tci_node *hit = tci_vjp_comm_op(v, TCI_OP_EQ, x, y);
    tci_node *one = tci_vjp_built(v, tci_build_cast(v->g, hit, (tc_dtype)x->dtype));
    tci_node *part = tci_vjp_comm_op(v, TCI_OP_DIV, tci_vjp_comm_sum(v, v->grad),
                                     tci_vjp_comm_sum(v, one));
    tci_node *is_nan = tci_vjp_built(v, tci_build_ew(v->g, TCI_OP_ISNAN, &y));
    tci_node *rest = tci_vjp_built(v, tci_build_where(v->g, is_nan, y, zero));
    return tci_vjp_built(v, tci_build_where(v->g, hit, part, rest));
}

/* A number of the run, which no compile knows. */
static tci_node *tci_vjp_comm_flag(const tci_vjp *v, bool value)
{
    tci_node *n = tci_vjp_built(v, tci_graph_node(v->g, TCI_OP_LITERAL, TC_BOOL, 0, NULL, 0, NULL,
                                                  0, NULL));
    n->value.u = value;
    return n;
}

/* The sum of all, on the root alone: whether this rank is that one is a number of the run, so that
 * the program is the same on all. */
static tci_node *tci_vjp_comm_broadcast(const tci_vjp *v)
{
    const tci_comm_step c = tci_build_comm_step(v->n);
    tc_comm *comm = tci_comm_retain(c.comm);
    tci_node *root = tci_vjp_comm_flag(v, comm && comm->rank == c.peer);
    tci_comm_release(comm);
    return tci_vjp_built(v, tci_build_where(v->g, root, tci_vjp_comm_sum(v, v->grad),
                                            tci_vjp_comm_zero(v, v->grad)));
}

TCI_FN tci_node *tci_vjp_COLLECTIVE(const tci_vjp *v)
{
    switch ((tc_comm_verb)v->n->attr[TCI_COLLECTIVE_VERB]) {
    case TC_COMM_ALL_REDUCE:
        return v->n->attr[TCI_COLLECTIVE_HOW] == TC_COMM_SUM ? tci_vjp_comm_sum(v, v->grad)
                                                             : tci_vjp_comm_extreme(v);
    case TC_COMM_ALL_GATHER: return tci_vjp_comm(v, TC_COMM_REDUCE_SCATTER, v->grad);
    case TC_COMM_REDUCE_SCATTER: return tci_vjp_comm(v, TC_COMM_ALL_GATHER, v->grad);
    case TC_COMM_BROADCAST: return tci_vjp_comm_broadcast(v);
    case TC_COMM_ALL_TO_ALL: return tci_vjp_comm(v, TC_COMM_ALL_TO_ALL, v->grad);
    case TC_COMM_SEND:
        return tci_vjp_comm_op(v, TCI_OP_ADD, v->grad, tci_vjp_comm(v, TC_COMM_RECV, v->grad));
    case TC_COMM_RECV: /* zero, which is there when the gradient was sent */
        return tci_vjp_built(v, tci_build_where(v->g, tci_vjp_comm_flag(v, false),
                                                tci_vjp_comm(v, TC_COMM_SEND, v->grad),
                                                tci_vjp_comm_zero(v, v->n->in[0])));
    case TC_COMM_BARRIER:
    case TC_COMM_VERB_COUNT: break;
    }
    TCI_ASSERT(v->s, false); /* of bool */
    return NULL;
}
