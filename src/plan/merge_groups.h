/* plan/merge_groups.h - declares merges of fusion groups, horizontal and vertical: tried on
 * copies, built where legal. */
#ifndef TCI_PLAN_MERGE_GROUPS_H
#define TCI_PLAN_MERGE_GROUPS_H

#include "fusion_groups.h"

/* The groups that are joined. INTO gives the outer space; MAKES is read by it; TAKES, a
 * contraction, reads it. */
typedef enum tci_join_part { TCI_JOIN_MAKES, TCI_JOIN_INTO, TCI_JOIN_TAKES } tci_join_part;

typedef struct tci_join {
    tci_fusion *f;
    int32_t group[3]; /* by tci_join_part; -1: none */
    bool keeps;       /* contractions among them keep rows (kernel/ir.h) */
    /* derived */
    int32_t n_outer;
    tci_dim *outer;
    int32_t *roots;
    int n_roots;                    /* in order */
    int32_t **outer_of, **inner_of; /* per root, per axis of its domain: those of the new group */
    tci_dim *inner;
    int n_inner, cap_inner;
} tci_join;

/* Finds the axes of the new group. False: `why` they cannot be found, the group would break an
 * invariant of plan/fusion_groups.h, or it is too large. Nothing has changed then. */
TCI_FN bool tci_join_try(tci_join *j, tci_why *why);
/* The same for a list of groups, the first of which is INTO: its outer axes are those of what root
 * `product` computes but for `summed`, and axes are the same where a read says so. */
TCI_FN bool tci_join_try_pairs(tci_join *j, const int32_t *groups, int n_groups, int product,
                               uint64_t summed, tci_why *why);
/* Makes it the group INTO; the others have no roots from then on. */
TCI_FN void tci_join_build(tci_join *j);
/* True if the root belongs to that part. */
TCI_FN bool tci_join_is_of(const tci_join *j, int root, tci_join_part part);
/* After the last one: leaves out groups without roots, finds dependencies anew, and drops the
 * refusals whose two sides have come together. */
TCI_FN void tci_join_renumber(tci_fusion *f);

#endif
