/* plan/group.h - fusion: which values get memory (roots), and which roots share a kernel (groups).
 *
 * Root: a node whose value is computed by a stage: every reduction, contraction and scan, every
 * program output, and whatever the cost rules force into memory. All other nodes are inlined where
 * they are used. A root has a domain: for a VALUE its axes; for a REDUCE or CONTRACT its output
 * axes, then the summed ones; for a SCAN its other axes, then the scanned one.
 *
 * Probe: each root is lowered once on its own to learn what it reads, at which index, and what that
 * costs. A read is `pure` when every axis of what is read is an axis of the reader's domain (or has
 * size 1).
 *
 * Group: roots over one outer space. A reader joins the group of what it reads when the read is
 * pure and keeps the outer index; siblings join when their spaces are equal. Invariants: groups
 * form a DAG; within a group roots are in topological order; a group with a CONTRACT or SCAN holds
 * no other reduction. */
#ifndef TCI_PLAN_GROUP_H
#define TCI_PLAN_GROUP_H

#include "../kernel/lower.h"
#include "plan.h"

typedef enum tci_root_kind {
    TCI_ROOT_VALUE,
    TCI_ROOT_REDUCE,
    TCI_ROOT_CONTRACT,
    TCI_ROOT_SCAN
} tci_root_kind;

typedef struct tci_read {
    int32_t root;    /* what is read */
    bool pure;
    /* per axis of what is read: the reader's domain axis, -1 where the size is 1 */
    int32_t *axes;
} tci_read;

typedef struct tci_root {
    tci_node *node;
    uint8_t kind;
    bool is_output;
    int32_t group;
    int32_t n_domain, n_out;      /* domain axes; the first n_out index the output */
    tci_dim *domain;
    int32_t *out_axis;            /* per axis of the node: its domain axis */
    int32_t *outer_of;            /* per domain axis: the group's outer axis, -1 inner */
    tci_read *reads; int32_t n_reads, cap_reads;
    tci_node **leaves; int32_t n_leaves, cap_leaves;   /* distinct leaves read */
    /* nodes evaluated, once per distinct index */
    tci_node **inlined; int32_t n_inlined;
    int32_t n_insts;
    int32_t buffer;               /* where its value is kept; -1: nowhere */
    /* buffers that also get it (program outputs) */
    int32_t *outputs; int32_t n_outputs, cap_outputs;
} tci_root;

typedef struct tci_group {
    int32_t n_outer;
    tci_dim *outer;
    int32_t *roots; int32_t n_roots, cap_roots;
    int32_t *deps; int32_t n_deps, cap_deps;           /* groups it reads from */
    bool has_reduce, has_contract, has_scan;
    int32_t n_insts;
    int32_t stamp;                                     /* of the last graph walk */
} tci_group;

typedef struct tci_fusion {
    tci_scratch *s;
    tci_node_list nodes;          /* everything the outputs need, inputs first */
    tci_root *roots; int32_t n_roots, cap_roots;
    tci_group *groups; int32_t n_groups, cap_groups;
    int32_t *order;               /* groups in execution order */
    int32_t stamp;
    tci_str *why;
} tci_fusion;

/* node->pass of every node while a plan is made. */
typedef struct tci_pnode {
    int32_t root;        /* its index, or -1 */
    bool forced;         /* must be a root */
    int32_t cost;        /* flops of one evaluation with everything inlined, capped */
    int32_t n_uses, depth, moves; /* of the depth rule */
    int32_t seen_group, n_groups; /* scratch of the sharing rule */
    int32_t seen_root, n_here;    /* scratch of the re-evaluation rule */
} tci_pnode;
static inline tci_pnode *tci_pnode_of(const tci_node *n) { return (tci_pnode *)n->pass; }

/* plan/algorithm.c: rewrites one node into several where that is how it should be computed (split
 * of large reductions, wide concatenations, operands of contractions) and forces roots (node->mark
 * = 1). */
TCI_FN void tci_plan_algorithm(tci_scratch *s, tci_graph *g, tci_node **roots, int n_roots,
                               tci_machine machine);
/* plan/group.c */
TCI_FN tci_fusion *tci_plan_fuse(tci_scratch *s, tci_node *const *outputs, int n_outputs,
                                 tci_str *why);
/* Index of input `input` of a REDUCE, CONTRACT or SCAN root, given that of each domain axis. */
TCI_FN const int *tci_plan_input_index(tci_lower *l, const tci_root *r, int input,
                                       const int *domain);
/* plan/kernel.c: one group as a kernel. operands_out: buffer or leaf behind each operand;
 * literals_out: the LITERAL node of each slot. */
typedef struct tci_lowered {
    tci_kernel *kernel;
    int32_t *operand_buffers;    /* buffer index in the plan */
    tci_node **literals;
} tci_lowered;
TCI_FN tci_lowered tci_plan_lower(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                  tci_plan *plan);
/* Buffer of a leaf, made on demand by plan/plan.c. */
TCI_FN int tci_plan_leaf_buffer(const tci_plan *p, const tci_node *leaf);
/* plan/memory.c: lifetimes, arena offsets and input/output aliases of a finished step list. */
TCI_FN void tci_plan_memory(tci_scratch *s, tci_plan *p);

#endif
