/* kernel/match_attention_backward.h - declares the pattern match that recognizes fused attention
 * backward in a GPU kernel, on tensor cores or SIMT threads. */
#ifndef TCI_KERNEL_MATCH_ATTENTION_BACKWARD_H
#define TCI_KERNEL_MATCH_ATTENTION_BACKWARD_H

#include "match_attention.h"

enum {
    TCI_BACKWARD_SUMS = 256, /* on a unit, columns of last products whose accumulators fit */
    TCI_BACKWARD_ROUND = 16, /* of each a multiple of this */
    TCI_BACKWARD_VALUES = 4  /* of a query alone, at most */
};

/* Rows are queries and steps keys, or the other way round. The first two products, over d, make the
 * score and the change of the weight of each pair of a row and a step; the last ones, over the
 * steps, take what follows of these for the row. What takes weights alone needs no change: of the
 * second product there are the steps then, and no rows. */
typedef struct tci_attn_grad {
    tci_matrix in[2];  /* scores, changes of weights. A: rows, B: steps; n counts steps */
    tci_matrix out[2]; /* of changes of scores, of weights; or, n_in == 1, of weights */
    int32_t n_in, n_out;
    bool by_step;            /* queries are the steps */
    bool on_unit;            /* a matrix unit takes its factors in their layout; threads take any */
    int32_t scores, changes; /* the instructions that stand for the two products, */
    int32_t score;           /* for x, of which the weight is exp(x - most) / sum, */
    int32_t weight;          /* for the weight that `change` takes, and whether it is rounded, */
    bool rounds;
    int32_t change; /* and for the change of a score */
    /* Of a query alone: most, sum, and what else `change` takes. */
    int32_t values[TCI_BACKWARD_VALUES];
    int32_t n_values;
    tci_attention_cut cut;
    int32_t threads; /* of a block (loop/simt_attention.h); 0: on a matrix unit; */
    int32_t blocks;  /* and how many of them an SM has at once */
    int32_t rings;   /* steps that are in shared memory at once, each of in[0].columns */
    int32_t slots;   /* for the rows of a tile */
} tci_attn_grad;

/* The steps that last product i takes are those of in[this]. */
static inline int tci_attn_grad_taken(const tci_attn_grad *x, int i)
{
    return x->n_in == 1 ? 1 : i;
}

/* Columns of a last product with so many numbers. */
static inline int64_t tci_attn_grad_columns_of(int64_t size)
{
    return (size + TCI_BACKWARD_ROUND - 1) / TCI_BACKWARD_ROUND * TCI_BACKWARD_ROUND;
}

/* True if the machine has a form for the kernel, and it is profitable. */
TCI_FN bool tci_attn_grad_fits(const tci_kernel *k, tci_machine machine);
/* Everything but the tile; false: it is no such kernel. */
TCI_BLOCK_FN bool tci_attn_grad_find(const tci_kernel *k, tci_attn_grad *x);
/* Of a kernel that fits: STEPS and, on a unit, MATRIX where they belong. */
TCI_FN void tci_attn_grad_set_orders(tci_kernel *k, tci_machine machine);

#endif
