/* plan/fusion_cost.h - defines the constants of the fusion cost model.
 *
 * They are ratios of times, not figures of one chip: a vector machine with several cores does 5 to
 * 10 flops per value in the time in which it moves the value to or from memory. */
#ifndef TCI_PLAN_FUSION_COST_H
#define TCI_PLAN_FUSION_COST_H

enum {
    /* Flops on a value that take as long as moving it once. Storing it moves it twice (a line of a
     * cache is read before it is written). */
    TCI_COST_MOVE = 6,
    /* Flops on four bytes x evaluations in one kernel from which a value is stored. */
    TCI_COST_AGAIN = 64,
    /* Flops on four bytes that reading one element at an index of its own takes a processor. */
    TCI_COST_PICK = 16,
    /* Elements of a row from which a value for it that takes this many flops on bytes is stored. */
    TCI_COST_SPREAD = 32,
    TCI_COST_ROOT = 16,
    TCI_COST_DEPTH = 6,    /* reductions, or moves, unrolled on one path */
    TCI_COST_RESHAPES = 6, /* that an index goes through on one path */
    TCI_COST_WALK = 64,    /* nodes below a value that are visited: more are expensive */
    /* A kernel's operations, a call of exp or sin as TCI_COST_CALL: from about here on a C compiler
     * takes more time for each (gcc -O3: 0.4 ms each up to 250, 0.7 ms at 500, 1.6 ms at 2000), and
     * one more load and store no longer matter in comparison. */
    TCI_COST_KERNEL_OPS = 400,
    TCI_COST_CALL = 6,
    TCI_COST_KERNEL_OPERANDS = 64 /* leaves and values in memory that one kernel reads */
};

#endif
