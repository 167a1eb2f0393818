/* interp/reference.h - declares the reference evaluator (test oracle): evaluates a graph node by
 * node, in plain code. It shares only the scalar primitives and the value columns with the rest of
 * tc: tests check these against definitions of their own (tests/judge.h). It is not a backend. */
#ifndef TCI_INTERP_REFERENCE_H
#define TCI_INTERP_REFERENCE_H

#include "../graph/side_table.h"

/* Sees each node once it and its inputs have their values, each element in the compute dtype. */
typedef struct tci_reference_watch {
    void (*see)(void *user, const tci_node *n, const tci_table *values);
    void *user;
} tci_reference_watch;
/* Of a watch's `values`: those of the node, or of an input of it. */
static inline const tci_value *tci_reference_values(const tci_table *values, const tci_node *n)
{
    return *(tci_value *const *)tci_table_item(values, n);
}

/* Evaluates `roots` given the memory of INPUT nodes (inputs[i] for input_nodes[i], dense). Writes
 * root j densely, in its dtype, to outputs[j]. wide = true: floats are computed in f64 all the way
 * (the accuracy judge); false: exactly what the op rows promise, reductions in row-major order. */
TCI_FN tc_status tci_reference_eval(tci_node *const *input_nodes, const void *const *inputs,
                                    int n_inputs, tci_node *const *roots, void *const *outputs,
                                    int n_roots, bool wide);
/* The same, not wide, under a watch. */
TCI_FN tc_status tci_reference_eval_watched(tci_node *const *input_nodes, const void *const *inputs,
                                            int n_inputs, tci_node *const *roots,
                                            void *const *outputs, int n_roots,
                                            const tci_reference_watch *watch);

#endif
