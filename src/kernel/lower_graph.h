/* kernel/lower_graph.h - declares the lowering of graph nodes to kernel IR.
 *
 * Evaluation: the value of a node at an index (one index expression per axis) under a guard is an
 * instruction. Layout ops only change the index; elementwise ops become prims; the caller decides
 * what a node is to this kernel: a buffer to load, a reduction of this kernel, or a value to
 * inline. */
#ifndef TCI_KERNEL_LOWER_GRAPH_H
#define TCI_KERNEL_LOWER_GRAPH_H

#include "../graph/node.h"
#include "ir.h"

typedef struct tci_lower tci_lower;
struct tci_lower {
    tci_scratch *s;
    tci_kernel *k;
    void *user;
    /* The instruction for node at idx when it is an access of this kernel; -1: inline it. guard: a
     * guard set of this lowering, to be put on loads (tci_lower_load does). */
    int (*access)(tci_lower *l, tci_node *n, const int *idx, int guard);
    int (*literal)(tci_lower *l, tci_node *n); /* the kernel's slot of a LITERAL node */
    /* private: memo of evaluated values, and guard sets */
    struct tci_lower_memo *memo;
    int n_memo, cap_memo;
    int32_t *table;
    int n_table;
    struct tci_lower_set {
        int32_t first, n;
    } *sets;
    int n_sets, cap_sets;
    struct tci_lower_frame *frames;
    int n_frames, cap_frames;
    struct tci_lower_frame *deps;
    int n_deps, cap_deps;
    int *dep_insts;
    int n_dep_insts, cap_dep_insts;
    int32_t *plain;
    int n_plain, cap_plain; /* per index expression: without BOUND; -1 not asked */
};

TCI_FN void tci_lower_init(tci_lower *l, tci_scratch *s, tci_kernel *k);
/* The value of n at idx[n->rank], under guard set `guard` (0 = none). */
TCI_FN int tci_lower_value(tci_lower *l, tci_node *n, const int *idx, int guard);
/* From now on inst is the value of n at idx, without a guard, which was evaluated before. */
TCI_FN void tci_lower_replace(tci_lower *l, tci_node *n, const int *idx, int inst);
/* The value and position that SCATTER n stores at idx, which counts the elements of src along the
 * axis. */
typedef struct tci_lower_placed {
    int value;    /* an instruction; -1: nothing is stored at any idx */
    int index;    /* the element of x along the axis, an index expression */
    int guard;    /* a bool instruction: nothing is stored where it does not hold; -1: always */
    int from, to; /* SEGMENT: the range of the order, index expressions; else -1 */
} tci_lower_placed;
TCI_FN tci_lower_placed tci_lower_scatter(tci_lower *l, const tci_node *n, const int *idx);
/* The same of a SEGMENT; at: the position in the order. */
TCI_FN tci_lower_placed tci_lower_segment(tci_lower *l, const tci_node *n, const int *idx, int at);
/* The nodes evaluated so far, one entry per distinct (node, index). Array in scratch; returns the
 * count. */
TCI_FN int tci_lower_visited(tci_lower *l, tci_node ***nodes);
/* The RESHAPEs below which an index has a division or remainder that the kernel needs and that
 * their own index has not: how many. Array in scratch. */
TCI_FN int tci_lower_dividing(tci_lower *l, tci_node ***nodes);
/* A load of operand p (compute dtype t) at element offset x under a guard set. */
TCI_FN int tci_lower_load(tci_lower *l, int operand, tc_dtype t, int x, int guard);
/* Offset of idx in a tensor with these sizes, dense row-major, or with element strides (base: the
 * lowest address is element 0, so that offsets are never negative). */
TCI_FN int tci_lower_offset(tci_lower *l, int rank, const tci_dim *shape, const tci_dim *strides,
                            const int *idx);
/* Rounds a compute value to a node's dtype, once (f16 and bf16 travel as f32). */
TCI_FN int tci_lower_round(tci_kernel *k, int value, tc_dtype to);
/* A value of what an element is to a reduction: an element formula of ops/formula_bytecode.h in
 * dtype t, over the element and its index x along the axis. */
TCI_FN int tci_lower_element(tci_kernel *k, const uint8_t *words, tc_dtype t, int element, int x);
/* An elementwise op of two values of one compute dtype. */
TCI_FN int tci_lower_pair(tci_kernel *k, int op, int a, int b);
/* Converts between compute dtypes. */
TCI_FN int tci_lower_convert(tci_kernel *k, int value, tc_dtype to);

#endif
