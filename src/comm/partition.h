/* comm/partition.h - SPMD partitioning (as in GSPMD, arXiv 2105.04663): rewrites a graph over
 * global tensors into the graph of one rank over its shards.
 *
 * A sharding (split) gives, for each axis of a value, the communicator over which it is split into
 * equal shards: rank r has shard r. 0: not sharded; c + 1: over communicator c of the traversal. An
 * axis is sharded over one communicator, and a communicator shards one axis of a value. A value may
 * in addition be partial over communicators: the sum over their ranks is the value. */
#ifndef TCI_COMM_PARTITION_H
#define TCI_COMM_PARTITION_H

#include "../api/api_call.h"
#include "../graph/build.h"
#include "../graph/side_table.h"
#include "../run/runtime_structs.h"

enum { TCI_PART_COMMS = 16 };

typedef struct tci_part_form { /* a value with another split */
    struct tci_part_form *next;
    const int8_t *split;
    tci_node *node;
} tci_part_form;

typedef struct tci_part_value {
    tci_node *node; /* this rank's part; NULL: not met yet. In a dry traversal the whole */
    int8_t *split;
    uint32_t partial;          /* bits of communicators */
    bool in_body;              /* computed in the body of a loop */
    struct tci_part_value *as; /* the value of another node; NULL: its own */
    tci_part_form *forms;      /* whole sums among them: never partial */
} tci_part_value;

typedef struct tci_part {
    tci_scratch *s;
    tci_graph *g;
    tci_ctx *ctx;
    tc_comm *comms[TCI_PART_COMMS]; /* counted */
    int n_comms;
    bool dry;         /* splits are found, no node is made */
    tci_table values; /* tci_part_value by node of the whole graph */
    tci_table leaves; /* of INPUT and DATA: int8_t *, the split that was marked or found */
} tci_part;

/* ---- partition.c ---- */
/* n; longjmps with the graph's error where it is NULL. */
TCI_FN tci_node *tci_part_built(tci_part *v, tci_node *n);
TCI_FN tci_part_value *tci_part_of(tci_part *v, const tci_node *n);
/* The whole operand's part with that split, no longer partial: collectives and slices make it. */
TCI_FN tci_node *tci_part_want(tci_part *v, tci_node *n, const int8_t *split);
/* True if the size is a multiple of the communicator's ranks. */
TCI_FN bool tci_part_fits(const tci_part *v, tci_dim size, int split);
TCI_FN int8_t *tci_part_none(tci_part *v, int rank);
/* True if an axis of the split is cut over that communicator. */
TCI_FN bool tci_part_uses(const int8_t *split, int rank, int comm);
/* The shape of n cut by a split. */
TCI_FN tci_dim *tci_part_shape(tci_part *v, const tci_node *n, const int8_t *split);
/* Meets n's operands, then n. */
TCI_FN void tci_part_reach(tci_part *v, tci_node *n);
/* A reduction over the ranks of a communicator. */
TCI_FN tci_node *tci_part_reduce(tci_part *v, tci_node *n, int comm, tc_comm_how how, tc_site site);

/* ---- partition_rules.c ---- */
/* Fills in the value of n, whose operands were met. */
TCI_FN void tci_part_visit(tci_part *v, tci_node *n);

/* A call that makes n tensors of n others: `body` makes out of the roots that stand for them; where
 * it longjmps or fails the frame, the status and out[0] have the error. */
typedef void (*tci_part_body)(void *walk, tci_frame *f, tci_scratch *s, tci_node **roots, int n,
                              tc_tensor *out);
TCI_FN tc_status tci_part_call(const char *name, tc_site here, tci_part_body body, void *walk,
                               const tc_tensor *tensors, int n, tc_tensor *out);

#endif
