/* kernel/attention.h - rows of attention that a GPU's matrix unit takes, as kernels. */
#ifndef TCI_KERNEL_ATTENTION_H
#define TCI_KERNEL_ATTENTION_H

#include "matrix.h"

enum {
    TCI_ATTENTION_SIZE = 256, /* of a query, and of a value, at most */
    TCI_ATTENTION_LEAST = 16  /* of both, and keys of a row */
};

/* The two products share m (queries) and the batch. */
typedef struct tci_attention {
    tci_matrix scores;  /* A: queries, B: keys; n counts keys */
    tci_matrix result;  /* A: weights, which are in no memory, B: values; k counts keys */
    int32_t score;      /* the instruction whose rows the weights are made of */
    /* A query sees the keys up to number cut_base + cut_rows * query alone: all others have one
     * score, whatever their product is. */
    bool is_cut;
    int64_t cut_base, cut_rows;
    int32_t seen;       /* what the score is of keys that a query sees: `score`, without the cut */
    int32_t rings;      /* of keys, and of values, each of scores.columns */
    int32_t slots;      /* for the queries of a tile */
    bool turns;         /* consumers issue products in turn: one multiplies, the other has powers */
} tci_attention;

/* Does the machine's unit take the kernel, and is it worth it? */
TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine);
/* Everything but the tile; false: it is no such kernel. */
TCI_FN bool tci_attention_find(const tci_kernel *k, tci_attention *x);
/* Of a kernel that fits: MATRIX and STEPS where they belong. */
TCI_FN void tci_attention_set_orders(tci_kernel *k);

#endif
