/* loop/reduction_step.h - declares the emission of one reduction step to loop IR: creates
 * accumulators at the identity, and combines an accumulator with a new element. */
#ifndef TCI_LOOP_REDUCTION_STEP_H
#define TCI_LOOP_REDUCTION_STEP_H

#include "lower_expr.h"

/* An accumulator, or what it takes in (DOT: two factors): the parts, then -1. */
typedef struct tci_stage_tuple {
    int part[TCI_PARTS];
} tci_stage_tuple;
TCI_FN tci_stage_tuple tci_stage_tuple_of(int first, int second);
/* Callback for each part: returns the value of one part. */
typedef int (*tci_stage_part_fn)(tci_build *b, int part, int imm);
TCI_FN tci_stage_tuple tci_stage_each(tci_build *b, tci_stage_tuple x, tci_stage_part_fn fn,
                                      int imm);
/* x where the mask is true, else y. */
TCI_FN tci_stage_tuple tci_stage_choose(tci_build *b, int mask, tci_stage_tuple x,
                                        tci_stage_tuple y);
TCI_FN tci_stage_tuple tci_stage_operands(tci_build *b, const tci_kred *red);
TCI_FN tci_stage_tuple tci_stage_combine(tci_build *b, const tci_kred *red, tci_stage_tuple acc,
                                         tci_stage_tuple v);
TCI_FN tci_stage_tuple tci_stage_identity(tci_build *b, const tci_kred *red);
/* mutable, at the identity */
TCI_FN tci_stage_tuple tci_stage_accumulator(tci_build *b, const tci_kred *red, int lanes);
/* SPLIT: what no parts sum up to: -0, so that the first part is added as it is; the same, mutable;
 * and with the part at hand added. */
TCI_FN tci_stage_tuple tci_stage_none(tci_build *b, const tci_kred *red);
TCI_FN tci_stage_tuple tci_stage_total(tci_build *b, const tci_kred *red, int lanes);
TCI_FN tci_stage_tuple tci_stage_joined(tci_build *b, const tci_kred *red, tci_stage_tuple total,
                                        tci_stage_tuple part);
TCI_FN void tci_stage_assign(tci_build *b, tci_stage_tuple acc, tci_stage_tuple v);
TCI_FN void tci_stage_remember_result(tci_build *b, const tci_kred *red, tci_stage_tuple acc);
/* Accumulators of a vector in local arrays, at index expression x. */
TCI_FN tci_stage_tuple tci_stage_array_get(tci_build *b, const tci_kred *red, tci_stage_tuple array,
                                           int x);
TCI_FN void tci_stage_array_set(tci_build *b, tci_stage_tuple array, int x, tci_stage_tuple v);
/* Arrays of n accumulators; those of all virtual lanes, at the identity. */
TCI_FN tci_stage_tuple tci_stage_array_local(tci_build *b, const tci_kred *red, int64_t n);
TCI_FN tci_stage_tuple tci_stage_array_make(tci_build *b, const tci_kred *red);

#endif
