/* engines/tvm.h - TVM as a graph-level backend (api/graph_backend.h). */
#ifndef TCI_ENGINES_TVM_H
#define TCI_ENGINES_TVM_H

#include "load_library.h"

TCI_FN const tc_graph_backend *tci_tvm_backend(void);

#endif
