/* kernel/match_attention.h - defines the descriptor of a fused attention kernel for GPUs, forward
 * or gradient, and declares its match.
 *
 * Each of these kernels is one chain: contractions that make a score for each pair of a row and a
 * step, operations on the pair, contractions over the steps. A block keeps a tile of rows resident
 * and streams the steps, so no rows x steps array is stored:
 *
 *     s = in[0].A in[0].B^T       the product that scores are made of
 *     g = in[1].A in[1].B^T       n_in == 2: the gradient of the weight
 *     w = exp(score - most) / sum      c = change(w, g, values of the query)
 *     out[i] = sum over the steps of w or c, rounded to the operands' dtype, times a step's row:
 *              c takes in[0].B, w takes in[1].B (tci_attention_taken)
 *
 * A is resident (rows), B streamed (steps). The kernels are rows of one table:
 *
 *     kernel           rows     steps    n_in  out takes  most and sum
 *     forward          queries  keys     1     w          computed here (is_online)
 *     row statistics   queries  keys     1     (w)        computed here and stored (only_rows)
 *     dQ               queries  keys     2     c          loaded
 *     dK and dV        keys     queries  2     c, w       loaded
 *     dK               keys     queries  2     c          loaded
 *     dV               keys     queries  1     w          loaded
 *
 * Invariants: all operands have one dtype; in and out share m, the batch, and in[0].n, the steps.
 * in[1].B is always described: with n_in == 1 it is the operand that w is multiplied with, in[1].A
 * is absent and in[1].k counts the columns of the result. An online chain has n_in == n_out == 1
 * and its steps are keys. With n_out == 2, out[0] takes c and out[1] takes w. The members above the
 * tile are a function of the kernel alone; loop/flash_attention.c sets the tile. */
#ifndef TCI_KERNEL_MATCH_ATTENTION_H
#define TCI_KERNEL_MATCH_ATTENTION_H

#include "match_matrix_unit.h"

enum {
    TCI_ATTENTION_SIZE = 256,  /* elements of a row of an operand, at most */
    TCI_ATTENTION_LEAST = 16,  /* steps; on a matrix unit, elements of a row too */
    TCI_ATTENTION_FEWEST = 32, /* rows of a tile */
    TCI_ATTENTION_SUMS = 256, /* columns of all results on a matrix unit: registers hold the sums */
    TCI_ATTENTION_ROUND = 16, /* columns of each result: a multiple of this */
    TCI_ATTENTION_VALUES = 4  /* values of a query alone, at most */
};

/* A query sees the keys up to number base + rows * query alone: all others have one score, whatever
 * their product is. */
typedef struct tci_attention_cut {
    bool is_cut;
    int64_t base, rows;
    int32_t seen; /* the score of a key that a query sees: without the cut */
    int32_t off;  /* the score of a key that it does not see */
} tci_attention_cut;

/* Instructions by number; -1: there is none. */
typedef struct tci_attention {
    tci_matrix in[2];  /* A: rows, B: steps; n counts steps */
    tci_matrix out[2]; /* A: pairs, which are in no memory, B: steps; k counts steps */
    int32_t n_in, n_out;
    bool is_online;      /* most and sum are made in the chain, with rescaled sums */
    bool by_step;        /* queries are the steps */
    bool only_rows;      /* nothing takes out[0], only its n counts: the keys stand for its B */
    bool on_unit;        /* a matrix unit takes the operands in their layout; threads take any */
    bool tells;          /* is_online: stores values made of most and sum */
    int32_t products[2]; /* the values of the first contractions */
    int32_t score;       /* the x of exp(x - most) / sum */
    int32_t weight;      /* the weight that `change` takes, */
    bool rounds;         /* and whether that is rounded */
    int32_t change;      /* the gradient of a score */
    /* Of a query alone: most, sum, and other operands of `change`. */
    int32_t values[TCI_ATTENTION_VALUES];
    int32_t n_values;
    tci_attention_cut cut;
    /* The tile. */
    int32_t threads; /* of a block without a matrix unit; 0: on one */
    int32_t blocks;  /* that a processor has at once */
    int32_t rings;   /* steps in shared memory at once, each of in[0].columns */
    int32_t slots;   /* for the rows of a tile */
    bool turns;      /* consumers issue products in turn: one multiplies, the other computes
                      * exponentials */
} tci_attention;

/* The steps that last contraction i takes are in[this].B. */
static inline int tci_attention_taken(const tci_attention *x, int i)
{
    return x->n_in == 1 ? 1 : i;
}

/* Columns of a result with this many elements to a row. */
static inline int64_t tci_attention_columns_of(int64_t size)
{
    return (size + TCI_ATTENTION_ROUND - 1) / TCI_ATTENTION_ROUND * TCI_ATTENTION_ROUND;
}

/* True if blocks of the machine can run the chain by threads. */
static inline bool tci_attention_has_threads(tci_machine machine)
{
    return machine.block_threads > 0 && !machine.no_shared_memory;
}

/* True if the machine has a form for the kernel, and it is profitable. */
TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine);
/* Fills *x up to the tile; false: the kernel is no such chain. */
TCI_BLOCK_FN bool tci_attention_find(const tci_kernel *k, tci_attention *x);
/* Sets the orders of a kernel that fits: STEPS and, on a matrix unit, MATRIX. */
TCI_FN void tci_attention_set_orders(tci_kernel *k, tci_machine machine);
/* True if the kernel has the association class of attention on SIMT threads. */
TCI_FN bool tci_attention_is_simt(const tci_kernel *k);
/* Tiles of columns that a tile of rows goes through, on average; a cut leaves a triangle. */
TCI_BLOCK_FN double tci_attention_steps(const tci_attention *x);

#endif
