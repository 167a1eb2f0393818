/* loop/combine.h - one step of a reduction: accumulators and what they take in. */
#ifndef TCI_LOOP_COMBINE_H
#define TCI_LOOP_COMBINE_H

#include "build.h"

/* An accumulator or what it takes in: value and, for ARG, its index (DOT: the second factor). */
typedef struct tci_stage_pair { int value, index; } tci_stage_pair;
TCI_FN bool tci_stage_is_arg(const tci_kred *red);
TCI_FN int tci_stage_select(tci_build *b, int mask, int x, int y);
TCI_FN tci_stage_pair tci_stage_operands(tci_build *b, const tci_kred *red);
TCI_FN tci_stage_pair tci_stage_combine(tci_build *b, const tci_kred *red, tci_stage_pair acc,
                                        tci_stage_pair v);
TCI_FN tci_stage_pair tci_stage_identity(tci_build *b, const tci_kred *red);
/* mutable, at the identity */
TCI_FN tci_stage_pair tci_stage_accumulator(tci_build *b, const tci_kred *red, int lanes);
TCI_FN void tci_stage_assign(tci_build *b, tci_stage_pair acc, tci_stage_pair v);
TCI_FN void tci_stage_remember_result(tci_build *b, const tci_kred *red, tci_stage_pair acc);
/* Accumulators of a vector in local arrays, at index expression x. */
TCI_FN tci_stage_pair tci_stage_array_get(tci_build *b, const tci_kred *red, tci_stage_pair array,
                                          int x);
TCI_FN void tci_stage_array_set(tci_build *b, tci_stage_pair array, int x, tci_stage_pair v);
/* Arrays with all virtual lanes at the identity. */
TCI_FN tci_stage_pair tci_stage_array_make(tci_build *b, const tci_kred *red);

#endif
