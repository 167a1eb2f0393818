/* compile/graph_backend_registry.h - the registry of graph-level backends (api/graph_backend.h). */
#ifndef TCI_COMPILE_GRAPH_BACKEND_REGISTRY_H
#define TCI_COMPILE_GRAPH_BACKEND_REGISTRY_H

#include "../api/graph_backend.h"
#include "compiled_code.h"

/* A graph to write: nodes of the user's graph, in the context ctx. Inputs are INPUT nodes or leaves
 * of parameters, roots may be ASSIGN nodes, whose new value is the output. */
typedef struct tci_model_graph {
    const tc_ctx *ctx;
    tc_site here; /* of the call that compiles */
    tci_node *const *inputs, *const *roots;
    const tc_graph_port *input_ports, *output_ports; /* names, dtypes, sizes */
    int n_inputs, n_roots;
    const tci_table *known; /* nodes whose item is not 0: of the request, */
    tci_node **at;          /* the one of them that is being written; or NULL */
} tci_model_graph;

struct tc_graph_format {
    const char *name; /* "ONNX" */
    bool known_sizes; /* it has no symbolic sizes */
    /* Appends the model; a graph that has no form in it longjmps through s. */
    void (*write)(tci_scratch *s, const tci_model_graph *graph, tci_str *out);
};

/* A name of options.backend: a graph backend, and its option. Process lifetime. */
struct tci_graph_entry {
    tci_backend backend; /* of that whole name; backend.graph is this struct */
    const tc_graph_backend *calls;
    const char *option;
    struct tci_graph_entry *next;
};

/* An engine's program of a graph or a part of one (compile/graph_backend_program.c); owned by its
 * code. */
struct tci_graph_program {
    const struct tci_graph_entry *entry;
    void *compiled;
    /* Leaves that are part of the model: numbers of captured leaves, and their versions. */
    int n_constants;
    int32_t *constants;
    uint64_t *versions;
    struct tci_graph_program *next; /* of the same code */
};
/* True if the leaf is part of the model; else it is a parameter, an input of the engine. */
TCI_INLINE bool tci_graph_backend_embeds(const tci_node *leaf)
{
    return !leaf->storage->param;
}
/* Threads that an engine may use. */
TCI_FN int tci_graph_backend_threads(const tc_options *o);
/* Frees what the engine has of it and of the next ones; no run of them is under way. NULL: none. */
TCI_FN void tci_graph_backend_free(tci_graph_program *p);

/* The backend of that name, with or without an option; NULL: there is none, or no memory for it. */
TCI_FN const tci_backend *tci_graph_backend_pick(const char *name);
/* Name number i; NULL: there are fewer. */
TCI_FN const char *tci_graph_backend_name(int i);
/* True if it has a proper name and every required member. */
TCI_FN bool tci_graph_backend_is_complete(const tc_graph_backend *b);
/* Adds one whose name is free. TC_ERR_LIMIT. */
TCI_FN tc_status tci_graph_backend_add(const tc_graph_backend *b);
/* Graph backend number i, for tc_backend_at; NULL: there are fewer. */
TCI_FN const tc_backend_entry *tci_graph_backend_at(int i);

#endif
