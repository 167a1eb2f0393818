/* plan/relayout.h - declares copies of operands in another layout (axis order, row pitch, dtype).
 *
 * In: a value, and the layout that a route requests: axis order, row pitch, dtype. Out: the copy,
 * which is materialized, seen with the axes of the value. All such copies are built by `relayout`;
 * the routes only name the layout. */
#ifndef TCI_PLAN_RELAYOUT_H
#define TCI_PLAN_RELAYOUT_H

#include "../graph/contraction_descriptor.h"
#include "fusion_groups.h"

typedef struct tci_relayout_to {
    const int64_t *order; /* axis i of the copy is axis order[i] of the value; NULL: as it is */
    int axis;             /* of the value: zeros are appended along it */
    int64_t size;         /* until it has this many elements; 0: none are */
    bool is_turned;       /* the result keeps the order of the copy; else it has the value's */
    bool is_own;          /* a copy also where the order is the value's, whose other readers keep
                           * what they read */
} tci_relayout_to;

/* x in memory in that layout. */
TCI_FN tci_node *tci_relayout(const tci_algo *a, tci_node *x, tci_relayout_to to);
/* The same with rows of a multiple of `align` elements. */
TCI_FN tci_node *tci_relayout_pitch(const tci_algo *a, tci_node *x, const int64_t *order,
                                    int align);
/* Panels of a matrix x: `width` neighbours along `axis`, and all of the other axis; an element
 * holds `points` of it (plan/prepack.c draws them). */
typedef struct tci_relayout_panel {
    int axis;
    int64_t width;
    int points;
} tci_relayout_panel;
/* x over a copy in panels, whose width is noted in a->panels. */
TCI_FN tci_node *tci_relayout_panels(const tci_algo *a, tci_node *x, tci_relayout_panel panel);
/* Writes the order of x's axes in which `axis` comes last. */
TCI_FN void tci_relayout_last(const tci_node *x, int axis, int64_t *order);
/* Operand x with `now` in place of `source`, a value that it moves, pads or converts: what
 * moves and pads takes now's dtype. */
TCI_FN tci_node *tci_relayout_over(const tci_algo *a, tci_node *x, const tci_node *source,
                                   tci_node *now);
/* x with its axes in that order: one PERMUTE at most. */
TCI_FN tci_node *tci_algo_permute(const tci_algo *a, tci_node *x, const int64_t *perm);
/* x with `fill` appended along an axis until it has `size` elements. */
TCI_FN tci_node *tci_algo_pad_axis(const tci_algo *a, tci_node *x, int axis, int64_t size,
                                   tci_node *fill);
/* The last axis of n with more than one element, or its last one. */
TCI_FN int tci_relayout_row_axis(const tci_node *n);
/* Operand n below a widening of f16 or bf16 values or small integers, and layout ops on it, that
 * nothing stores; NULL: none. */
TCI_FN tci_node *tci_plan_narrow(const tci_algo *a, tci_node *n);
/* Operand n with zeros around values in f16 or bf16 or in small integers, rather than around what
 * is widened of them: equal values, and a copy of fewer bytes, from which a lane may take
 * several products at once. */
TCI_FN tci_node *tci_relayout_pad_narrow(const tci_algo *a, tci_node *n);
/* Forces the value of operand n into memory: the first one below its views, or of the conversions
 * among them the one to the fewest bytes. */
TCI_FN void tci_relayout_store(const tci_algo *a, tci_node *n);

#endif
