/* debug/captured_program.h - declares captured programs: a program's graph and inputs as data that
 * can be reduced, rebuilt and run. */
#ifndef TCI_DEBUG_CAPTURED_PROGRAM_H
#define TCI_DEBUG_CAPTURED_PROGRAM_H

#include "../run/runtime_structs.h"

typedef struct tci_case_node {
    int op; /* a leaf is TCI_OP_INPUT */
    int8_t dtype;
    int32_t rank, n_in, n_attr;
    int64_t *shape, *attr; /* never changed in place: copies of a case share them */
    int32_t *in;
    tci_value value;   /* of a LITERAL or CONST */
    const char *data;  /* of a leaf: dense elements; NULL: zeros */
    const char *known; /* of any node: its value, or NULL */
} tci_case_node;

typedef struct tci_case {
    tci_case_node *nodes;
    int n; /* inputs before users; in a scratch */
    int root;
} tci_case;

/* Memory for the inputs of a graph: see tci_case_read. */
typedef struct tci_case_memory {
    const int64_t *literals;     /* words, by program slot */
    const char *const *inputs;   /* dense memory of the user's inputs, or NULL */
    const char *const *captured; /* element 0...0 of the captured leaves, or NULL */
} tci_case_memory;

#ifndef TC_NO_DEBUG
/* The graph of a key (compile/cache_key.c), whose canonical numbers are the numbers of the nodes.
 * False: it has symbolic sizes, or is not understood. */
TCI_FN bool tci_case_read(tci_scratch *s, const uint8_t *key, size_t n, size_t at,
                          const tci_case_memory *memory, tci_case *k);
/* The part of k that `root` needs, where nodes with cut[i] are leaves with their known value. */
TCI_FN tci_case tci_case_cut(tci_scratch *s, const tci_case *k, int root, const bool *cut);
/* Ops that compute, without movement of numbers. */
TCI_FN int tci_case_size(const tci_case *k);
TCI_FN bool tci_case_is_leaf(const tci_case_node *n); /* memory or a number */
TCI_FN int64_t tci_case_bytes(const tci_case_node *n);
/* Status of compiling and running the case: *kind is one of TC_CHECK_..., 0: no check failed. */
TCI_FN tc_status tci_case_try(tci_scratch *s, const tci_case *k, const tc_options *o, bool runs,
                              int *kind);
/* Sets `known` of all nodes that compute, by the interpreter, op by op. False: it failed. */
TCI_FN bool tci_case_compute(tci_scratch *s, tci_case *k);
/* Runs it with those options; *out: dense elements of the root, in s. NULL: it failed. */
TCI_FN tc_status tci_case_result(tci_scratch *s, const tci_case *k, const tc_options *o,
                                 const char **out);
/* Copies a strided view, whose element 0...0 is at `from`, to dense memory. */
TCI_FN void tci_case_copy(char *to, const char *from, size_t bytes, int rank, const int64_t *sizes,
                          const int64_t *strides);
#endif

#endif
