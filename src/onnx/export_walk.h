/* onnx/export_walk.h - declares the traversal of an exported graph: operands first, each node once.
 *
 * In: a graph, the nodes that are inputs, and a function that writes one node. Out: for each node
 * its value name in the exported file. A composite that the function does not write is replaced by
 * its expansion. Shared by ONNX (export.c) and StableHLO (export_stablehlo.c), with the frames of
 * public calls, the names of inputs and the values of captured memory. */
#ifndef TCI_ONNX_EXPORT_WALK_H
#define TCI_ONNX_EXPORT_WALK_H

#include "../run/runtime_structs.h"

/* State of a node: its name, and its expansion (which may be another node when built again). NULL:
 * not yet. */
typedef struct tci_ox_left {
    const char *name;
    tci_node *expansion;
} tci_ox_left;

typedef struct tci_ox_walk tci_ox_walk;
struct tci_ox_walk {
    tci_scratch *s;
    tci_graph *graph;
    const char *format; /* "ONNX", for messages */
    tci_node *const *inputs;
    int n_inputs;                   /* named before the traversal; any nodes */
    const char *const *input_names; /* of each; NULL: tci_ox_input_name chooses */
    /* Writes n, whose operands have the names in[], and returns its name; NULL: n has no form, or
     * leaves as its expansion. */
    const char *(*leave)(tci_ox_walk *w, tci_node *n, const char *const *in);
    /* The nodes that n is written from, in the scratch, and how many: these, not n's operands, must
     * have names, and their names are `in` then. 0, or the function NULL: n's operands. */
    int (*needs)(tci_ox_walk *w, tci_node *n, tci_node *const **list);
    void *to; /* leave's own */
    /* DATA nodes as an initializer or a constant; of a user's graph tci_ox_memory_of reads them */
    tci_ctx *ctx;
    tc_site here;
    tci_ox_left *left;
    uint32_t n_left; /* by the id of a node */
    /* *at is the node of `known` that is being written, outside of loops; NULL: not asked */
    tci_node **at;
    const tci_table *known;
    int depth; /* of nested traversals */
};

/* Ends the export: n, made at its place, has no form, and why; "" is no reason. */
TCI_FN void tci_ox_refuse(const tci_ox_walk *w, const tci_node *n, const char *why);
TCI_FN const char *tci_ox_named(const tci_ox_walk *w, const tci_node *n); /* NULL: none yet */
TCI_FN void tci_ox_set_name(tci_ox_walk *w, const tci_node *n, const char *name);
/* Writes root and what it needs; returns its name. */
TCI_FN const char *tci_ox_walk_to(tci_ox_walk *w, tci_node *root);
/* True if a node of the graph reads the rows of a carry of the REPEAT: else none is stored. */
TCI_FN bool tci_ox_rows_are_read(const tci_ox_walk *w, const tci_node *repeat);
/* The name of input i: as given, else that of the tc_input where it is unlike all others, else
 * "input<i>". */
TCI_FN const char *tci_ox_input_name(const tci_ox_walk *w, int i);
/* The elements of a node with a value, dense and row-major, as they are now. */
TCI_FN const void *tci_ox_memory_of(const tci_ox_walk *w, tci_node *n, int64_t *bytes);
/* The name of a parameter; NULL: n is none, or has no name. */
TCI_FN const char *tci_ox_parameter_name(const tci_ox_walk *w, tci_node *n);
/* A file, complete or not at all. */
TCI_FN void tci_ox_put_file(const tci_ox_walk *w, const char *path, const tci_str *bytes);

/* One public call that exports: checks the lists, then calls `write` with the outputs' nodes. */
typedef struct tci_ox_export {
    const char *call, *format;
    tc_tensors inputs, outputs;
    const void *how; /* the caller's options */
    void *to;        /* of the caller, for write */
    void (*write)(tci_ox_walk *w, tci_node *const *outputs, int n, const struct tci_ox_export *e);
} tci_ox_export;
TCI_FN tc_status tci_ox_export_call(const tci_ox_export *e, tc_site here);

#endif
