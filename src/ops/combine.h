/* ops/combine.h - combiners of reductions: how two partial results become one, as a straight-line
 * program over the parts of both.
 *
 * A reduction starts at the identities and combines its elements one by one, each as the partial
 * result of itself alone; virtual lanes are combined in the same way. The interpreter and the loop
 * builder execute the same program, so a reduction is defined by its row of ops/table.h alone.
 *
 * Values of a program are numbered: the parts of the first tuple from 0 on, those of the second
 * (PAIR: the two factors) from TCI_PARTS on, then one for each instruction. Invariants
 * (tests/unit/test_formula.c): args[i] < own number; equal instructions are merged; combining with
 * the identity changes nothing. */
#ifndef TCI_OPS_COMBINE_H
#define TCI_OPS_COMBINE_H

#include "formula_bytecode.h"

enum { TCI_COMBINE_MOST = 40 }; /* instructions of a program */

typedef struct tci_combine_inst {
    /* a BASE or MATH prim (FMA also of integers: a * b + c); TCI_W_MAX and TCI_W_MIN, of floats;
     * TCI_W_K: the constant `value` */
    uint8_t op;
    uint8_t n_args;
    int8_t from, dtype; /* of the operands (SELECT: of what is selected); of the result */
    int8_t args[3];
    tci_value value;
} tci_combine_inst;

typedef struct tci_combine {
    int n;
    tci_combine_inst insts[TCI_COMBINE_MOST];
    int n_parts;
    int8_t part[TCI_PARTS]; /* the parts of the result: value numbers */
} tci_combine;

/* The program of a tci_red_op that accumulates in t. */
TCI_FN void tci_combine_make(tci_combine *c, int red, tc_dtype t);

TCI_FN const char *tci_red_name(int red);
TCI_FN int tci_red_parts(int red);
TCI_FN int tci_red_takes(int red); /* values that an element is: as many as parts, or two factors */
TCI_FN int tci_red_cost(int red, tc_dtype t);                  /* flops of a step */
TCI_FN tc_dtype tci_red_dtype(int red, int part, tc_dtype t);  /* of a part */
TCI_FN tc_dtype tci_red_taken(int red, int which, tc_dtype t); /* of a value of an element */
TCI_FN tci_value tci_red_identity(int red, int part, tc_dtype t);

#endif
