/* plan/split_k.h - declares split-K for the contraction routes that split K: partial sums over
 * parts of K.
 *
 * In: a CONTRACT. Out: its summed axes, and the nodes of its parts, where `at` and `length` are
 * chosen. */
#ifndef TCI_PLAN_SPLIT_K_H
#define TCI_PLAN_SPLIT_K_H

#include "contraction_route.h"

/* Of the models of GPUs, in cycles of an SM (measured on an H100). */
enum {
    TCI_SPLIT_K_MANY = 512,         /* parts, at most, */
    TCI_SPLIT_K_LEAST_HALVES = 256, /* of f16 or bf16 values, of no fewer products */
    TCI_SPLIT_K_PROCESSORS = 132,
    TCI_SPLIT_K_LAUNCH = 3500,     /* of the kernel that adds up the parts */
    TCI_SPLIT_K_CYCLE_BYTES = 1500 /* of partial sums, for all SMs together */
};

typedef struct tci_split_k {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    const tci_node *n;
    const tci_contraction *c;
    tc_dtype sum; /* of products and sums: n's, f32 for f16 and bf16 */
    tci_node *in[2];
    int64_t *labels[2];
    const int64_t *out;
    int64_t *summed, *sizes; /* labels and their sizes, outermost first */
    int n_summed;
    int64_t fresh;  /* a label that nothing has */
    int at;         /* summed[at] is cut; those before it are parts as they are */
    int64_t length; /* elements of summed[at] in a part */
} tci_split_k;

/* Fills what n is; false where it is left alone whatever its sizes. */
TCI_FN bool tci_split_k_begin(tci_split_k *p);
/* Products of a sum. */
TCI_FN double tci_split_k_products(const tci_split_k *p);
/* Bytes of partial sums, written and read. */
TCI_FN double tci_split_k_moved(const tci_split_k *p);
/* The sum of the parts that were chosen, and a line in `orders`. */
TCI_FN tci_node *tci_split_k_made(tci_split_k *p);

/* A product of f16 or bf16 values on tensor cores, as the models see it. */
typedef struct tci_unit_gemm {
    const double *size; /* of groups of axes (TCI_AXES_*) */
    double k, bytes;    /* products of a sum; bytes of the operands */
    double results, sum_bytes;
    double step; /* cycles of 64 products along K that no tile is faster than; 0: none */
} tci_unit_gemm;

/* plan/tensor_core_split_k.c: cycles with K in this many parts, and the best number of parts. */
TCI_BLOCK_FN double tci_unit_gemm_cycles(const tci_unit_gemm *g, double parts);
TCI_BLOCK_FN double tci_unit_gemm_parts(const tci_unit_gemm *g);

#endif
