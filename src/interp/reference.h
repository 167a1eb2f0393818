/* interp/reference.h - the judge: evaluates a graph node by node, naively, in the plainest code
 * there is. Shares only the scalar prims with the rest. For tests and tc_triage; not a backend. */
#ifndef TCI_INTERP_REFERENCE_H
#define TCI_INTERP_REFERENCE_H

#include "../graph/node.h"

/* Evaluates `roots` given the memory of INPUT nodes (inputs[i] for input_nodes[i], dense). Writes
 * root j densely, in its dtype, to outputs[j]. wide = true: floats are computed in f64 all the way
 * (the accuracy judge); false: exactly what the op rows promise, reductions in row-major order. */
TCI_FN tc_status tci_reference_eval(tci_node *const *input_nodes, const void *const *inputs,
                                    int n_inputs, tci_node *const *roots, void *const *outputs,
                                    int n_roots, bool wide);

#endif
