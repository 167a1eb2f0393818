/* ops/arrange.c - arrangements: elements of x elsewhere, as movements and reads at indices.
 *
 * In: nodes, axes, sizes. Out: RESHAPE, EXPAND, SLICE, GATHER and so on (graph/move.c). */
#include "composite.h"

TCI_FN tci_node *tci_build_repeat_each(tci_graph *g, tci_node *x, int axis, tci_dim times)
{
    int at;
    tci_words w;
    if (!x || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "the number of repeats", times, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (!tci_dim_le(0, times)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "%s repeats: expected 0 or more%s", TCI_DIM_TEXT(times),
                       TCI_LEAST_NOTE(times, 0));
        return NULL;
    }
    tci_dim *shape = tci_words_get(g, &w, 2 * x->rank + 4);
    if (!shape) {
        return NULL;
    }
    const int rank = x->rank ? x->rank : 1;
    tci_dim *apart = shape, *whole = shape + rank + 1;
    for (int i = 0; i < rank; i++) {
        tci_dim size = x->rank ? x->shape[i] : 1;
        apart[i + (i > at)] = size;
        whole[i] = i == at ? tci_dim_mul(size, times) : size;
    }
    apart[at + 1] = 1;
    tci_node *r = tci_build_reshape(g, x, rank + 1, apart);
    apart[at + 1] = times;
    r = tci_build_broadcast(g, r, rank + 1, apart);
    return tci_words_put(g, &w, tci_build_reshape(g, r, rank, whole));
}
