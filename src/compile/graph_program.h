/* compile/graph_program.h - programs of graph-level backends: an engine's program as code. */
#ifndef TCI_COMPILE_GRAPH_PROGRAM_H
#define TCI_COMPILE_GRAPH_PROGRAM_H

#include "disk.h"
#include "graph_backend.h"

/* Writes the request's graph as a model, has the engine compile it and fills c, whose key and
 * symbols are set: ports, one step that calls the engine, the list, explain. Escapes through s: the
 * engine is not there, or refuses the graph. */
TCI_FN void tci_graph_program_make(tci_scratch *s, tci_code *c, const tci_request *r,
                                   const tci_request_copy *copy, const tci_backend *b,
                                   const tci_disk *d);
/* One run. operands: memory of each input, then of each output. text: why it failed. */
TCI_FN tc_status tci_graph_program_run(const tci_custom_call *call, void *const *operands,
                                       char text[TC_GRAPH_TEXT]);

#endif
