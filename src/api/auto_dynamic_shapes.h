/* api/auto_dynamic_shapes.h - automatic dynamic shapes of tc_jit: decides which sizes a
 * specialization fixes, and which become symbolic dimensions because they differed between calls.
 */
#ifndef TCI_API_AUTO_DYNAMIC_SHAPES_H
#define TCI_API_AUTO_DYNAMIC_SHAPES_H

#include "../run/specializations.h"

/* Generalization settings of a tc_jit, from its options. */
typedef struct tci_general {
    tc_jit_axis *fixed;
    int n_fixed; /* axes whose sizes never become symbols */
    bool pads;   /* sizes are rounded up instead */
} tci_general;

/* The options keep axis a of input i, which has that rank, a number. */
TCI_FN bool tci_general_is_fixed(const tci_general *g, int i, int a, int rank);
/* Notes the sizes of the signature. Under the owner's lock. */
TCI_FN void tci_general_learn(tci_variant_kind *k, const tci_signature *sig);
/* Every axis fixed to its size in the signature. */
TCI_FN void tci_general_fixed(const tci_signature *sig, tci_variant_guard *guards);
/* Guards of attempt 0, 1, ..., from the most general on: sizes that varied are ranges, equal where
 * they were equal each time. False: there is no such attempt, as no size that may vary did, or
 * without TC_DYNAMIC_SHAPES. */
TCI_FN bool tci_general_guards(const tci_general *g, const tci_variant_kind *k,
                               const tci_signature *sig, int attempt, tci_variant_guard *guards);
/* The size of each axis as tc_input takes it: a number or a symbol. */
TCI_FN void tci_general_dims(const tci_variant_kind *k, const tci_variant_guard *guards,
                             int64_t *dims);
/* True if such guards serve all sizes that x, which is of this kind, serves. */
TCI_FN bool tci_general_covers(const tci_variant_kind *k, const tci_variant_guard *guards,
                               const tci_variant *x);
/* "axis 0 of input 0 had 1 to 96: write TC_DIM("in0_0", 1, 96)", and so on: the sizes of this
 * kind that varied and are no symbols, and the static integers, dtypes and ranks that differ from
 * those of other kinds, each with the way to fewer specializations. */
TCI_FN void tci_general_advice(const tci_general *g, const tci_variants *v,
                               const tci_variant_list *l, char *text, size_t room);

#endif
