/* graph/collective.c - constructors of COLLECTIVE nodes, with their shape and dtype rules.
 *
 * In: an operand; where ranks exchange chunks, axis 0 indexes the ranks. Out: a new node for each
 * call. The public calls wrap these nodes in transposes and reshapes for other axes
 * (api/comm.c). */
#include "build.h"

TCI_FN tci_node *tci_build_collective(tci_graph *g, const tci_comm_step *c, tci_node *x)
{
    const int64_t attr[TCI_COLLECTIVE_WORDS] = {c->verb, c->how, c->comm, c->ranks, c->peer, 0};
    tci_words w;
    if (!x) {
        return NULL;
    }
    if (c->verb == TC_COMM_BARRIER) {
        return tci_build_node(g, TCI_OP_COLLECTIVE, TC_BOOL, 0, NULL, 1, &x, TCI_COLLECTIVE_WORDS,
                              attr);
    }
    int more = c->verb == TC_COMM_ALL_GATHER, less = c->verb == TC_COMM_REDUCE_SCATTER;
    tci_dim *shape = tci_words_dims(g, &w, x->rank + 1);
    if (!shape) {
        return NULL;
    }
    shape[0] = c->ranks;
    for (int d = more; d < x->rank + more - less; d++) {
        shape[d] = x->shape[d - more + less];
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, TCI_OP_COLLECTIVE, (tc_dtype)x->dtype,
                                        x->rank + more - less, shape, 1, &x, TCI_COLLECTIVE_WORDS,
                                        attr));
}

TCI_FN tci_comm_step tci_build_comm_step(const tci_node *n)
{
    return (tci_comm_step){.verb = (uint8_t)n->attr[TCI_COLLECTIVE_VERB],
                           .how = (uint8_t)n->attr[TCI_COLLECTIVE_HOW],
                           .ranks = (int32_t)n->attr[TCI_COLLECTIVE_RANKS],
                           .peer = (int32_t)n->attr[TCI_COLLECTIVE_PEER],
                           .number = (int32_t)n->attr[TCI_COLLECTIVE_NUMBER],
                           .comm = n->attr[TCI_COLLECTIVE_COMM]};
}

TCI_FN tci_node *tci_build_collective_like(tci_graph *g, const tci_node *n, tc_comm_verb verb,
                                           tci_node *x)
{
    tci_comm_step c = tci_build_comm_step(n);
    bool same = verb == (tc_comm_verb)c.verb;
    c.verb = (uint8_t)verb;
    c.how = same ? c.how : TC_COMM_SUM;
    tci_node *made = tci_build_collective(g, &c, x);
    if (made) {
        made->attr[TCI_COLLECTIVE_NUMBER] = n->attr[TCI_COLLECTIVE_NUMBER];
    }
    return made;
}
