/* engines/openvino.h - OpenVINO as a graph-level backend. */
#ifndef TCI_ENGINES_OPENVINO_H
#define TCI_ENGINES_OPENVINO_H

#include "load_library.h"

TCI_FN const tc_graph_backend *tci_openvino_backend(void);

#endif
