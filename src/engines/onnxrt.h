/* engines/onnxrt.h - ONNX Runtime and its execution providers as a graph-level backend. */
#ifndef TCI_ENGINES_ONNXRT_H
#define TCI_ENGINES_ONNXRT_H

#include "load_library.h"

TCI_FN const tc_graph_backend *tci_onnxrt_backend(void);

#endif
