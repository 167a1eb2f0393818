/* onnx/export.h - declares the exporters: a graph serialized in memory as an ONNX model (protobuf
 * bytes) or as a StableHLO module (text), for the public calls and for graph-level backends. The
 * traversal w defines which nodes are inputs (also DATA and LITERAL nodes). All memory comes from
 * w's scratch arena. Errors longjmp out. */
#ifndef TCI_ONNX_EXPORT_H
#define TCI_ONNX_EXPORT_H

#include "onnx.h"
#include "export_walk.h"

/* An ONNX model. weights: what belongs into a file named data_name, where how->external asks. */
TCI_FN void tci_ox_write_onnx(tci_ox_walk *w, tci_node *const *outputs, int n,
                              const tc_onnx_export *how, const char *data_name, tci_str *model,
                              tci_str *weights);
/* The text of a StableHLO module whose function @main has the inputs and outputs in their order. */
TCI_FN void tci_ox_write_stablehlo(tci_ox_walk *w, tci_node *const *outputs, int n,
                                   const tc_stablehlo_export *how, tci_str *text);

#endif
