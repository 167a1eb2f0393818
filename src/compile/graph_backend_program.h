/* compile/graph_backend_program.h - graphs compiled by external engines (graph-level backends such
 * as ONNX Runtime), wrapped as compiled code that has a single step. */
#ifndef TCI_COMPILE_GRAPH_BACKEND_PROGRAM_H
#define TCI_COMPILE_GRAPH_BACKEND_PROGRAM_H

#include "disk_cache.h"
#include "graph_backend_registry.h"

/* A program of an engine under construction: of a whole graph, or of a part of one. */
typedef struct tci_graph_making {
    tci_scratch *s;
    tci_code *c; /* that owns the program */
    const tci_request *r;
    const struct tci_graph_entry *e;
    const tci_disk *d;
    tci_node **inputs, **roots; /* of the user's graph, as in tci_model_graph */
    int n_inputs, n_roots;
    tc_graph_port *ports; /* inputs, then outputs */
    tci_str model;
    char version[TC_GRAPH_TEXT];
    tci_graph_program *made;
    bool from_blob; /* the engine was given a blob of the disk cache */
    bool is_part;
    tci_table leaves; /* of a part: memory that its model has copies of */
} tci_graph_making;

/* Loads the engine: its version. Longjmps: it is not there. */
TCI_FN void tci_graph_program_find(tci_graph_making *m);
/* NULL if the engine and its format take the op of n with n's dtype and sizes, else why not. */
TCI_FN const char *tci_graph_program_refusal(tci_graph_making *m, const tci_node *n);
/* The model of inputs and roots. Longjmps: a node has no form in the format; *at (or NULL) is that
 * node, or the one of the request that needs it. */
TCI_FN void tci_graph_program_write(tci_graph_making *m, tci_node **at);
/* Compiles the model by the engine: m->made, which the code owns. TC_ERR_BACKEND: the engine
 * refuses, as text says. Longjmps: out of memory. */
TCI_FN tc_status tci_graph_program_compile(tci_graph_making *m, char text[TC_GRAPH_TEXT]);
/* Appends engine, version and model, for tc_explain. */
TCI_FN void tci_graph_program_tell(const tci_graph_making *m, tci_str *text);

/* Writes the request's graph as a model, has the engine compile it and fills c, whose key and
 * symbols are set: ports, one step that calls the engine, the list, explain. Longjmps through s:
 * the engine is not there, or refuses the graph. */
TCI_FN void tci_graph_program_make(tci_scratch *s, tci_code *c, const tci_request *r,
                                   const tci_request_copy *copy, const tci_backend *b,
                                   const tci_disk *d);
/* One run. operands: memory of each input, then of each output, or of the one place of a part's
 * results; n_operands: more are copies of that. text: why it failed. */
TCI_FN tc_status tci_graph_program_run(const tci_custom_call *call, void *const *operands,
                                       int n_operands, char text[TC_GRAPH_TEXT]);
/* One result of a part, from the place of all. */
TCI_FN void tci_graph_program_unpack(const tci_custom_call *call, void *const *operands,
                                     int n_operands);

#endif
