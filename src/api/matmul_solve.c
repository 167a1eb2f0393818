/* api/matmul_solve.c - public ops on matrices: products and einsum, linear solves, Cholesky,
 * inverse, determinant, matrix powers.
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

TCI_OPS_BOTH(solve, a, b, (tc_tensor a, tc_tensor b, tc_site here), tci_build_solve, node, other)
TCI_OPS_BOTH(solve_triangular, a, b,
             (tc_tensor a, tc_tensor b, bool upper, bool left, bool unitriangular, tc_site here),
             tci_build_solve_triangular, node, other, upper, left, unitriangular)
TCI_OPS_ONE(cholesky, (tc_tensor x, bool upper, tc_site here), tci_build_cholesky, node, upper)
TCI_OPS_ONE(inv, (tc_tensor x, tc_site here), tci_build_inv, node)
TCI_OPS_ONE(det, (tc_tensor x, tc_site here), tci_build_det, node, TCI_DET_VALUE)
TCI_OPS_ONE(matrix_power, (tc_tensor x, int64_t n, tc_site here), tci_build_matrix_power, node, n)

TC_API void tc_slogdet_at(tc_tensor x, tc_tensor *sign, tc_tensor *logabsdet, tc_site here){
    TCI_OPS_STORE(sign, "tc_slogdet", tci_build_det(g, node, TCI_DET_SIGN))
        TCI_OPS_STORE(logabsdet, "tc_slogdet", tci_build_det(g, node, TCI_DET_LOG))}

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
