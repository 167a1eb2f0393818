/* onnx/export_direct_ops.h - declares the export of high-level ops that map one-to-one to an ONNX
 * operator (convolution, normalization, attention), kept in the graph as NAMED nodes.
 *
 * Operands of a NAMED node after the result, and its integer attributes after the call id:
 *   built rows        operands of the row; none
 *   CONV              x, weight, bias?; groups, then stride, dilation, padding before and after of
 *                     each axis of an image
 *   BATCH_NORM        x, weight?, bias?, mean, var, eps; has weight, has bias
 *   GROUP_NORM        x, weight?, bias?, eps; has weight, has bias, groups
 *   INSTANCE_NORM     as GROUP_NORM
 *   RMS_NORM          x, weight, eps; how many of the last axes
 *   ATTENTION         query, key, value, mask?, scale; is causal, has mask. A scale of 0 is
 *                     1 / sqrt(width) */
#ifndef TCI_ONNX_EXPORT_DIRECT_OPS_H
#define TCI_ONNX_EXPORT_DIRECT_OPS_H

#include "export_state.h"

/* How many operands of n the operator reads, from n->in[1] on; 0: n leaves as n->in[0], as the
 * operator is newer than `opset`, or asks for other shapes or dtypes. */
TCI_FN int tci_ox_named_operands(const tci_node *n, int opset);
/* The operator, over the names of those operands. */
TCI_FN const char *tci_ox_named_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in);

#endif
