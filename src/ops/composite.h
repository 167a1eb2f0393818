/* ops/composite.h - helpers that build the nodes of composite expansions (NULL in, NULL out), and
 * the expansions that other files define. */
#ifndef TCI_OPS_COMPOSITE_H
#define TCI_OPS_COMPOSITE_H

#include "../api/ops.h"
#include "../graph/build.h"

/* The dtype that n is computed in: f32 for f16 and bf16. */
TCI_FN tc_dtype tci_composite_math(const tci_node *n);
TCI_FN tci_node *tci_composite_unary(tci_graph *g, int op, tci_node *a);
TCI_FN tci_node *tci_composite_binary(tci_graph *g, int op, tci_node *a, tci_node *b);
TCI_FN tci_node *tci_composite_number(tci_graph *g, tc_dtype dtype, double v);
TCI_FN tci_node *tci_composite_whole(tci_graph *g, int64_t v); /* in i64 */
/* 0, 1, 2, ... n - 1 in i64 along one of rank axes; the others have size 1. */
TCI_FN tci_node *tci_composite_ramp(tci_graph *g, tci_dim n, int rank, int axis);
/* The value that loses against every other: -inf, or the least integer. */
TCI_FN tci_node *tci_composite_lowest(tci_graph *g, tc_dtype t);

/* ---- lu_cholesky.c: expansions ---- */
TCI_FN tci_node *tci_expand_LU(tci_graph *g, tci_node *n);
TCI_FN tci_node *tci_expand_SOLVE(tci_graph *g, tci_node *n);
TCI_FN tci_node *tci_expand_SOLVE_TRIANGULAR(tci_graph *g, tci_node *n);
TCI_FN tci_node *tci_expand_CHOLESKY(tci_graph *g, tci_node *n);

/* ---- grad/adjoint_ops.c ---- */
TCI_FN tci_node *tci_expand_CONV_TRANSPOSE(tci_graph *g, tci_node *n);

#endif
