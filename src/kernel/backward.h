/* kernel/backward.h - gradients of attention that a GPU makes in two kernels: on its matrix unit,
 * or by threads alone. */
#ifndef TCI_KERNEL_BACKWARD_H
#define TCI_KERNEL_BACKWARD_H

#include "attention.h"

enum {
    TCI_BACKWARD_SIZE = 128, /* on a unit, of both heads at most: a thread holds sums of both */
    TCI_BACKWARD_VALUES = 4  /* of a query alone, at most */
};

/* Rows are queries and steps keys, or the other way round. The first two products, over d, make the
 * score and the change of the weight of each pair of a row and a step; the last ones, over the
 * steps, take what follows of these for the row. */
typedef struct tci_backward {
    tci_matrix in[2];   /* scores, changes of weights. A: rows, B: steps; n counts steps */
    tci_matrix out[2];  /* of changes of scores, of weights. B: the steps of in[0], of in[1] */
    int32_t n_out;
    bool by_step;       /* queries are the steps */
    bool on_unit;       /* a matrix unit takes its factors as they lie; threads take any */
    int32_t scores, changes; /* the instructions that stand for the two products, */
    int32_t score;      /* for x, of which the weight is exp(x - most) / sum, */
    int32_t weight;     /* for the weight that `change` takes, and whether it is rounded, */
    bool rounds;
    int32_t change;     /* and for the change of a score */
    /* Of a query alone: most, sum, and what `change` takes besides. */
    int32_t values[TCI_BACKWARD_VALUES];
    int32_t n_values;
    tci_attention_cut cut;
    int32_t threads;    /* of a block without a matrix unit (loop/flash.h); 0: it is on one; */
    int32_t blocks;     /* and how many of them a processor has at once */
    int32_t rings;      /* steps that are in shared memory at once, each of in[0].columns */
    int32_t slots;      /* for the rows of a tile */
} tci_backward;

/* Is there a form of the machine for the kernel, and is it worth it? */
TCI_FN bool tci_backward_fits(const tci_kernel *k, tci_machine machine);
/* Everything but the tile; false: it is no such kernel. */
TCI_FN bool tci_backward_find(const tci_kernel *k, tci_backward *x);
/* Of a kernel that fits: STEPS and, on a unit, MATRIX where they belong. */
TCI_FN void tci_backward_set_orders(tci_kernel *k, tci_machine machine);

#endif
