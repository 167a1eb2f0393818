/* kernel/match_attention.h - declares the match of fused attention for GPUs, on tensor cores or by
 * SIMT threads. */
#ifndef TCI_KERNEL_MATCH_ATTENTION_H
#define TCI_KERNEL_MATCH_ATTENTION_H

#include "match_matrix_unit.h"

enum {
    TCI_ATTENTION_SIZE = 256, /* of a query, and of a value, at most */
    TCI_ATTENTION_LEAST = 16, /* keys of a row; on a unit, of both too */
    TCI_ATTENTION_FEWEST = 32 /* rows of a tile */
};

/* A query sees the keys up to number base + rows * query alone: all others have one score, whatever
 * their product is. */
typedef struct tci_attention_cut {
    bool is_cut;
    int64_t base, rows;
    int32_t seen; /* what the score is of keys that a query sees: without the cut */
    int32_t off;  /* and of those that it does not */
} tci_attention_cut;

/* The two products share m (queries) and the batch. */
typedef struct tci_attention {
    tci_matrix scores; /* A: queries, B: keys; n counts keys */
    tci_matrix result; /* A: weights, which are in no memory, B: values; k counts keys */
    int32_t score;     /* the instruction whose rows the weights are made of */
    tci_attention_cut cut;
    bool on_unit;      /* a matrix unit takes its factors in their layout; threads take any */
    bool is_rows;      /* nothing takes the result, whose n alone counts: keys are values too */
    bool tells;        /* stores values of a row alone, made of */
    int32_t most, sum; /* its largest score and the sum of its exponentials */
    int32_t threads;   /* of a block (loop/simt_attention.h); 0: on a matrix unit; */
    int32_t blocks;    /* and how many of them an SM has at once */
    int32_t rings;     /* of keys, and of values, each of scores.columns */
    int32_t slots;     /* for the queries of a tile */
    bool turns;        /* consumers issue products in turn: one multiplies, the other computes
                        * exponentials */
} tci_attention;

/* True if the machine has a form for the kernel, and it is profitable. */
TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine);
/* Everything but the tile; false: it is no such kernel. */
TCI_BLOCK_FN bool tci_attention_find(const tci_kernel *k, tci_attention *x);
/* Of a kernel that fits: STEPS and, on a unit, MATRIX where they belong. */
TCI_FN void tci_attention_set_orders(tci_kernel *k, tci_machine machine);
/* True if the kernel has the association class of attention on SIMT threads. */
TCI_FN bool tci_attention_is_simt(const tci_kernel *k);

/* Parts of it (kernel/match_attention_backward.c). Do blocks of the machine have a form by
 * threads? */
static inline bool tci_attention_has_threads(tci_machine machine)
{
    return machine.block_threads > 0 && !machine.no_exchange;
}
/* Instruction `inst` where it is such a PRIM, else NULL. */
TCI_BLOCK_FN const tci_kinst *tci_attention_prim(const tci_kernel *k, int inst, tci_prim prim);
/* The x - m of a power exp(x - m), else NULL. */
TCI_BLOCK_FN const tci_kinst *tci_attention_exponent(const tci_kernel *k, int inst);
/* The operand of a rounding to dtype t, if `inst` is one. */
TCI_BLOCK_FN int tci_attention_rounded(const tci_kernel *k, int inst, int8_t t);
/* e and l of a weight e / l or e * (1 / l); false: it is none. */
TCI_BLOCK_FN bool tci_attention_weight(const tci_kernel *k, int inst, int *e, int *l);
/* The rows of x: the longest outer axis of the set `own`; the rest is the batch. False: there are
 * none. */
TCI_BLOCK_FN bool tci_attention_rows(const tci_kernel *k, uint64_t own, tci_matrix *x);
/* Enough to multiply, where each pair has so many products, and tiles that can be counted? */
TCI_BLOCK_FN bool tci_attention_is_work(const tci_matrix *scores, double products);
/* True if axes and batch are few enough, with known sizes. */
TCI_BLOCK_FN bool tci_attention_has_sizes(const tci_kernel *k);
/* Tiles of columns that a tile of rows goes through, on average; a cut leaves a triangle. */
TCI_BLOCK_FN double tci_attention_steps(const tci_attention_cut *cut, const tci_matrix *scores);
/* The cut of `score`, whose queries and keys are these axes. */
TCI_BLOCK_FN tci_attention_cut tci_attention_find_cut(const tci_kernel *k, int score, int queries,
                                                      int keys);

#endif
