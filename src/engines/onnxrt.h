/* engines/onnxrt.h - onnxruntime as a graph-level backend, with its execution providers. */
#ifndef TCI_ENGINES_ONNXRT_H
#define TCI_ENGINES_ONNXRT_H

#include "library.h"

TCI_FN const tc_graph_backend *tci_onnxrt_backend(void);

#endif
