/* compile/graph_split.h - graph partitioning: finds the subgraphs that an external engine runs; tc
 * compiles the rest. */
#ifndef TCI_COMPILE_GRAPH_SPLIT_H
#define TCI_COMPILE_GRAPH_SPLIT_H

#include "graph_backend_program.h"

/* A call in the copy of a split graph: a CUSTOM node whose attribute is TCI_CUSTOM_SPLIT plus its
 * number. PART: the engine runs a part; UNPACK: one result of a part that has several. */
typedef struct tci_split_call {
    tci_custom_kind kind;
    tci_graph_program *engine; /* of a PART */
    const char *note;          /* for tc_explain */
    int n_results;             /* PART: of the engine, in their order. UNPACK: its own, */
    tci_node **results;        /* then those before it. Nodes of the user's graph */
    tci_dim *const *shapes;    /* of each, with the program's own symbols */
} tci_split_call;

typedef struct tci_split {
    tci_split_call *calls;
    int n_calls, cap_calls;
    const char *text; /* which part runs where, for tc_explain */
    const char *name; /* of the engine */
} tci_split;

/* The copy of a graph that is split between r->engine and r's own backend; programs of parts belong
 * to c. Longjmps: the engine is not there (TC_ERR_BACKEND), or takes nothing of the graph
 * (TC_ERR_UNSUPPORTED). */
TCI_FN tci_request_copy tci_split_copy_graph(tci_scratch *s, tci_code *c, const tci_request *r,
                                             const tci_disk *d, tci_split *split);

#endif
