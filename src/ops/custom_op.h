/* ops/custom_op.h - declares the registry of user-defined ops of this process, and their calls in a
 * run. */
#ifndef TCI_OPS_CUSTOM_OP_H
#define TCI_OPS_CUSTOM_OP_H

#include "../api/custom_op.h"
#include "../base/dim.h"
#include "../base/platform.h"
#include "communicator.h"

struct tci_graph;
struct tci_node;

typedef struct tci_custom tci_custom;
struct tci_custom {
    tc_custom_op op; /* its name and text are ours */
    int64_t number;  /* from 1 on: the attribute of a CUSTOM node */
    bool asserts;    /* a run fails if its condition does not hold (debug/debug_ops.c) */
    /* op.vjp over nodes (api/custom_op.c). NULL: it failed, and the graph says why; or *none. */
    struct tci_node *(*vjp)(const tci_custom *c, struct tci_graph *g, struct tci_node *n,
                            struct tci_node *grad, int which, bool *none);
    /* op.vmap over nodes with an axis in front, for n with that shape. NULL: as above. */
    struct tci_node *(*vmap)(const tci_custom *c, struct tci_graph *g, const struct tci_node *n,
                             struct tci_node *const *many, const tci_dim *shape);
    const tci_custom *next;
};

/* The attribute of a CUSTOM node from here on: a call of a split graph (compile/graph_split.h), by
 * its number. */
enum { TCI_CUSTOM_SPLIT = 1 << 30 };

/* One call: the arrays of its inputs and, last, of its results, without their memory. Of a
 * function of the user's, one of the two steps of a collective, or of an engine that runs the graph
 * or a part of it. A part has one place for all its results: in it they are one after the other,
 * and an UNPACK copies one of them, after n_more others, to a place of its own. */
typedef enum tci_custom_kind {
    TCI_CUSTOM_PLAIN,
    TCI_CUSTOM_PART,
    TCI_CUSTOM_UNPACK
} tci_custom_kind;
typedef struct tci_custom_call {
    const tci_custom *op; /* NULL: a collective's, or an engine's */
    tci_comm_step comm;
    struct tci_graph_program *engine; /* compile/graph_backend_program.h, or NULL */
    uint8_t kind;                     /* tci_custom_kind */
    int split;                        /* its number, where kind is not PLAIN */
    int n_inputs, n_more;             /* n_more: results of an engine after the first */
    tc_custom_array *arrays;
} tci_custom_call;

/* The op of that name and version, listed on its first use; lives as long as the process. A new one
 * takes over `fresh` (heap, all but its number set). */
TCI_FN const tci_custom *tci_custom_list(tci_custom *fresh);
TCI_FN const tci_custom *tci_custom_find(const char *name, int version);
TCI_FN const tci_custom *tci_custom_get(int64_t number);
/* Threads of a block, and elements of the result for each block, where the op's text runs. */
TCI_FN int tci_custom_threads(const tci_custom *c);
TCI_FN int64_t tci_custom_elements(const tci_custom *c);
/* Of an operand whose sizes are known. */
TCI_FN int64_t tci_custom_bytes(const tc_custom_array *a);
/* operands: memory of each input, then of n_results places for the result. */
TCI_FN void tci_custom_run(const tci_custom_call *call, void *const *operands, int n_results);

#endif
