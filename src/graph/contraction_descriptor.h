/* graph/contraction_descriptor.h - the descriptor of a contraction: axis groups and operands of a
 * GEMM, batched GEMM, convolution or einsum, decoded from a CONTRACT node once.
 *
 * In: a CONTRACT node. Out: a tci_contraction, which passes query instead of decoding the node's
 * attributes:
 *
 *     axes       of the result, in order, then the summed ones in the order of their first use;
 *                each has its position in operand 0, in operand 1 and in the result
 *     groups     batch: both operands and the result have the axis; M: operand 0 and the result;
 *                N: operand 1 and the result; K: both operands, summed; alone: a free reduction,
 *                in one operand only, summed
 *     operands   the value below views and casts, the window over it, the contiguous axis, bytes
 *                in memory, reads of each element
 *
 * Passes that need one label only ask tci_contract_axis, and those that look for a value below
 * movement ops call tci_below, the one such traversal, with the ops that it may pass.
 *
 * Invariants: an operand has each label once (graph/einsum.c takes diagonals first), so every
 * axis has at most one place in each; a descriptor is of one node and never changes; `products` and
 * the sizes of groups are exact where is_known, else typical. */
#ifndef TCI_GRAPH_CONTRACTION_DESCRIPTOR_H
#define TCI_GRAPH_CONTRACTION_DESCRIPTOR_H

#include "build.h"
#include "side_table.h"

/* ---- words of the node ---- */

/* Labels of the axes of operand 0, of operand 1, or (which = 2) of the result. */
static inline const int64_t *tci_contract_labels(const tci_node *n, int which)
{
    return n->attr + 3 + (which > 0 ? n->attr[0] : 0) + (which > 1 ? n->attr[1] : 0);
}

/* The axis of operand or result `which` with that label; -1: it has none. */
static inline int tci_contract_axis(const tci_node *n, int which, int64_t label)
{
    return tci_build_label(tci_contract_labels(n, which), n->attr[which], label);
}

static inline bool tci_contract_has(const tci_node *n, int which, int64_t label)
{
    return tci_contract_axis(n, which, label) >= 0;
}

/* True if the label is summed: the result lacks it. */
static inline bool tci_contract_sums(const tci_node *n, int64_t label)
{
    return !tci_contract_has(n, 2, label);
}

/* The axis of `to` (an operand, or 2: the result) that is axis `axis` of `from`; -1: `to` lacks
 * it. */
static inline int tci_contract_place(const tci_node *n, int from, int axis, int to)
{
    return tci_contract_axis(n, to, tci_contract_labels(n, from)[axis]);
}

/* True if that axis of operand `which` is summed. */
static inline bool tci_contract_sums_axis(const tci_node *n, int which, int axis)
{
    return tci_contract_place(n, which, axis, 2) < 0;
}

/* A label that no axis has. */
TCI_FN int64_t tci_contract_fresh(const tci_node *n);
/* The CONTRACT of dtype t with those operands, which have the axes of n's operands in the same
 * order, and n's labels. */
TCI_FN tci_node *tci_contract_of(tci_graph *g, const tci_node *n, tc_dtype t, tci_node *const *in);
/* n with the axes of its result in that order: axis i is axis order[i] of n. */
TCI_FN tci_node *tci_contract_in_order(tci_scratch *s, tci_graph *g, const tci_node *n,
                                       tci_node *const *in, const int64_t *order);

/* A CONTRACT to be made: its operands, and the labels of their axes and of the result's. */
typedef struct tci_contract_form {
    tci_node *in[2];
    const int64_t *labels[3];
    int rank[3];
} tci_contract_form;

TCI_FN tci_contract_form tci_contract_form_of(const tci_node *n);
/* The labels of operand or result `which` in that order: label i is what label order[i] was. */
TCI_FN void tci_contract_turn(tci_scratch *s, tci_contract_form *f, int which,
                              const int64_t *order);
/* Another axis in front of those of `which`. */
TCI_FN void tci_contract_lead(tci_scratch *s, tci_contract_form *f, int which, int64_t label);
/* The node, of that dtype and shape. */
TCI_FN tci_node *tci_contract_make(tci_scratch *s, tci_graph *g, const tci_contract_form *f,
                                   tc_dtype t, const tci_dim *shape);

/* ---- values below movement ---- */

typedef enum tci_through {
    TCI_THROUGH_VIEWS = 1, /* ops with TCI_IS_VIEW, except WINDOW */
    TCI_THROUGH_WINDOWS = 2,
    TCI_THROUGH_CASTS = 4,    /* all conversions */
    TCI_THROUGH_WIDENING = 8, /* those of bf16 and f16 to f32 */
    TCI_THROUGH_F32 = 16,     /* those to f32 */
    TCI_THROUGH_ZEROS = 32,   /* padding with zeros */
    TCI_THROUGH_PADS = 64,    /* all padding */
    TCI_THROUGH_KNOWN = 128,  /* stops at what has sizes or attributes that are symbols */
    TCI_THROUGH_MOVEMENT = TCI_THROUGH_VIEWS | TCI_THROUGH_WINDOWS,
    TCI_THROUGH_ALL = TCI_THROUGH_MOVEMENT | TCI_THROUGH_CASTS
} tci_through;

/* The first node, from n on along first inputs, that may not be passed (a set of tci_through), or
 * that is in the set `stored`, unless that is NULL. */
TCI_FN tci_node *tci_below(tci_node *n, int through, const tci_table *stored);
/* True if n is the constant 0. */
TCI_FN bool tci_is_zero(const tci_node *n);
/* True if the sizes of n, and its attributes, are known. */
TCI_FN bool tci_is_known(const tci_node *n);
/* The axis of n that is contiguous in memory, seen through permutations. */
TCI_FN int tci_fastest_axis(const tci_node *n);
/* True if n is the weights of attention, which one kernel makes of its scores
 * (plan/fusion_patterns.c), or is made of them element by element, as the changes of scores are. */
TCI_FN bool tci_is_of_weights(const tci_node *n);

/* ---- the descriptor ---- */

typedef enum tci_axes {
    TCI_AXES_BATCH,
    TCI_AXES_M,
    TCI_AXES_N,
    TCI_AXES_K,
    TCI_AXES_ALONE,
    TCI_AXES_COUNT
} tci_axes;

typedef struct tci_contract_axis_of {
    int64_t label;
    tci_dim size;
    int32_t at[3]; /* its position in operand 0, operand 1 and the result; -1: it has none there */
    uint8_t group; /* tci_axes */
} tci_contract_axis_of;

typedef struct tci_contract_operand {
    tci_node *node;
    const int64_t *labels;
    tci_node *source;       /* the value below views, windows and casts */
    const tci_node *window; /* the outermost WINDOW among them; NULL: none */
    tc_dtype dtype;         /* of source */
    int fastest;            /* tci_fastest_axis of node */
    double bytes;           /* of source in memory, typically */
    double reads;           /* how often an element of node is read, typically */
} tci_contract_operand;

typedef struct tci_contraction {
    const tci_node *n;
    const int64_t *out; /* labels of the result */
    tci_contract_axis_of *axes;
    int n_axes;
    tci_contract_operand in[2];
    double size[TCI_AXES_COUNT]; /* elements of each group, typically */
    double products;             /* multiply-adds, typically */
    int columns;   /* the operand that alone has the result's last axis; -1: none, or both have */
    bool is_known; /* all sizes of operands and result are */
} tci_contraction;

TCI_FN const tci_contraction *tci_contraction_of(tci_scratch *s, const tci_node *n);

#endif
