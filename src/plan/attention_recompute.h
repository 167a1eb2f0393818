/* plan/attention_recompute.h - declares the recomputation of attention scores in every kernel that
 * consumes them, so that no [queries, keys] array is stored. */
#ifndef TCI_PLAN_ATTENTION_RECOMPUTE_H
#define TCI_PLAN_ATTENTION_RECOMPUTE_H

#include "../graph/build.h"
#include "fusion_groups.h"

enum {
    TCI_SCORES_NODES = 64, /* bits of a set of them */
    TCI_SCORES_KERNELS = 8 /* of one set of pairs */
};

/* Data of a node of the list. */
typedef struct tci_scores_fact {
    int32_t at;      /* in the list */
    int32_t set;     /* number of the set that has it as a pair, from 1 on; 0: none */
    int32_t index;   /* among the pairs of that set */
    bool is_made;    /* a contraction, or pointwise over such a value of its shape; */
    bool has_powers; /* so of an exponential of such a value */
    bool is_output;
} tci_scores_fact;

/* A taker or a fold: what it does to a pair, and the kernel that it is part of. */
typedef struct tci_scores_end {
    tci_node *node;
    int32_t pair;
    uint64_t summed; /* axes of the pair */
    int32_t level, kernel;
    bool folds;
} tci_scores_end;

typedef struct tci_scores_set {
    int32_t number;
    tci_node **pairs;
    int n_pairs, cap_pairs; /* in the order of the list, once it is complete */
    tci_scores_end *ends;
    int n_ends, cap_ends;
    bool fits;
    struct {
        uint64_t summed;
        int32_t level;
        bool takes;     /* has a taker */
        uint64_t needs; /* pairs */
        tci_node **own; /* per pair: its node in this kernel */
    } kernels[TCI_SCORES_KERNELS];
    int n_kernels;
    int32_t first_kernel; /* number of the first one in the program */
} tci_scores_set;

/* A copy of a contraction: the first pair of the set that it is of, the contraction, and the number
 * of the copy. */
typedef struct tci_scores_copied {
    const tci_node *set, *of;
    int32_t n;
} tci_scores_copied;

typedef struct tci_scores {
    const tci_algo *a;
    const tci_scores_refused *refused;
    tci_node_list list;
    tci_table facts;
    int32_t *first_user, *users; /* per position in the list */
    tci_scores_set *sets;
    int n_sets, cap_sets;
    tci_scores_kernels *out; /* NULL: one kernel by itself is a set too */
    tci_table *origins;      /* of a node the one that it was before (const tci_node *), or NULL */
    bool bands;              /* no form of a kernel is asked for (plan/chunked_attention.c) */
    tci_table *parted;       /* of a taker how often copies of scores were refused (int32_t) */
    tci_table *copied;       /* of a taker: the one with scores of its own (tci_node *); */
    tci_table *copies;       /* per set: of a node the copy that all takers share (tci_node *) */
    int32_t *n_copies;       /* made of one contraction, in whatever sets the graph has */
    tci_table *own;          /* of a contraction that is a copy: tci_scores_copied; or NULL */
} tci_scores;

static inline tci_scores_fact *tci_scores_of(const tci_scores *p, const tci_node *n)
{
    return (tci_scores_fact *)tci_table_item(&p->facts, n);
}

/* ---- sizes ---- */

static inline bool tci_scores_same_shape(const tci_node *a, const tci_node *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++) {
        same = a->shape[i] == b->shape[i];
    }
    return same;
}

/* The axes of operand `which` that contraction n sums. */
static inline uint64_t tci_scores_summed(const tci_node *n, int which)
{
    uint64_t summed = 0;
    for (int i = 0; i < n->in[which]->rank; i++) {
        summed |= (uint64_t)tci_contract_sums_axis(n, which, i) << i;
    }
    return summed;
}

/* Products of an element of contraction n, typically. */
static inline double tci_scores_depth(const tci_node *n)
{
    double depth = 1;
    for (int i = 0; i < n->in[0]->rank; i++) {
        bool sums = tci_contract_sums_axis(n, 0, i);
        depth *= sums ? (double)tci_dim_hint(n->in[0]->shape[i]) : 1;
    }
    return depth;
}

/* True if the sizes of n are known, and bits of a word name its axes. */
static inline bool tci_scores_is_known(const tci_node *n)
{
    return n->rank < 64 && tci_build_is_known(n->rank, n->shape);
}

/* Elements of n, typically. */
static inline double tci_scores_count(const tci_node *n)
{
    return (double)tci_dim_hint(tci_node_count(n));
}

/* ---- plan/attention_recompute.c ---- */

/* The sets of a graph, in p->sets; of p the members up to `sets` and from it on are given. */
TCI_FN void tci_scores_look(tci_scores *p, tci_node *const *roots, int n_roots);
/* The end that node n is in some set that fits, which it names; NULL: it is none. */
TCI_FN const tci_scores_end *tci_scores_end_of(const tci_scores *p, const tci_node *n,
                                               const tci_scores_set **set);

#endif
