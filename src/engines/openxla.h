/* engines/openxla.h - XLA as a graph-level backend, through a PJRT plugin. */
#ifndef TCI_ENGINES_OPENXLA_H
#define TCI_ENGINES_OPENXLA_H

#include "load_library.h"

TCI_FN const tc_graph_backend *tci_openxla_backend(void);

#endif
