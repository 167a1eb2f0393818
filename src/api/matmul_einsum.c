/* api/matmul_einsum.c - products of matrices and einsum: tc_matmul, tc_bmm, tc_einsum.
 *
 * In: handles, attributes, the user's call site. Out: a handle to the node, or a poisoned one. */
#include "operand.h"
#include "ops.h"

static tci_node *tci_ops_build_bmm(tci_graph *g, tci_node *a, tci_node *b)
{
    if (a->rank != 3 || b->rank != 3 || a->shape[0] != b->shape[0]) {
        tci_graph_fail(g, TC_ERR_SHAPE, "shapes %s and %s: expected [n, i, k] and [n, k, j]",
                       TCI_SHAPE_TEXT(a), TCI_SHAPE_TEXT(b));
        return NULL;
    }
    return tci_build_matmul(g, a, b);
}

TCI_OPS_BOTH(matmul, a, b, (tc_tensor a, tc_tensor b, tc_site here), tci_build_matmul, node, other)
TCI_OPS_BOTH(bmm, a, b, (tc_tensor a, tc_tensor b, tc_site here), tci_ops_build_bmm, node, other)

TC_API tc_tensor tc_einsum_at(const char *spec, tc_tensors xs, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_einsum", here);
    tci_words w;
    tci_node **nodes = tci_ops_list(&f, xs, &w);
    if (!nodes) {
        return tci_frame_end(&f, NULL);
    }
    tci_node *r = tci_build_einsum(&f.ctx->graph, spec, nodes, xs.n);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}
