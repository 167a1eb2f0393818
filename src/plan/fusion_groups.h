/* plan/fusion_groups.h - defines fusion: which values are materialized (roots), and which roots
 * share a kernel (groups).
 *
 * Root: a node whose value is computed by a stage: every reduction, contraction and scan, every
 * program output, and every materialized value (plan/recompute_or_store.c). All other nodes are
 * inlined into their users. A root has a domain. VALUE: its axes. REDUCE, CONTRACT: the output
 * axes, then the summed ones. SCAN: its other axes, then the scanned one (with starts or linked
 * parts: its axes, where the scanned one counts parts, then the axis within a part). SCATTER: its
 * other axes, then its own axis, then that of src; with disjoint stores, the output axes. SEGMENT:
 * the output axes, then its order. The results of one REPEAT are a group by themselves, without an
 * outer space; its step stands for the steps of a body (plan/loops.c).
 *
 * Probe: each root is lowered once on its own to find what it reads, at which index, and what it
 * evaluates. A read is `pure` if every axis of the value read is an axis of the reader's domain
 * (or has size 1).
 *
 * Group: roots over one outer space. A consumer joins the group of a value that it reads if the
 * read is pure and keeps the outer index; siblings join if their spaces are equal. A softmax of
 * x[8, 100] is one group, whose outer space is the rows:
 *
 *     root                     domain        outer_of    reads
 *     REDUCE m = max(x, 1)     8, 100        0, -1
 *     REDUCE s = sum(exp(..))  8, 100        0, -1       m, axes {0}
 *     VALUE  y = exp(..) / s   8, 100        0, -1       m, axes {0}; s, axes {0}
 *
 * The axes of a read name an axis of the reader's domain for each axis of the value read; the
 * reader's outer_of follows from them and from that value's outer_of.
 *
 * Invariants (plan/verify.c):
 *  - every root is in one group; a group has at most TCI_GROUP_MAX_ROOTS of them, in topological
 *    order; a root reads only roots of lower numbers
 *  - groups form a DAG: `deps` lists once each group that a group reads from or that a BARRIER
 *    orders before it, and `order` runs those first
 *  - a VALUE is a root because it is an output or materialized, and is evaluated from leaves and
 *    roots alone; values read by another group, and results of a SCAN, have buffers
 *  - a domain has an axis of the same size for each axis of its node (or of size 1 for an axis that
 *    the root lists; two for the scanned axis of a SCAN with starts); each axis of a domain is an
 *    outer axis of its group, of the same size, or inner; each outer axis is iterated over once,
 *    in order
 *  - a read inside a group is pure and keeps the outer index; a value read through a BARRIER is in
 *    memory and in another group
 *  - the roots of a group are all computed once, or all in each run (plan/init_section.c)
 *  - the kernel of a group with a CONTRACT has the order of a matrix unit if the CONTRACT by itself
 *    has it (tci_plan_unit_of)
 *  - a group with a CONTRACT has no other reduction, one with a SCAN none after it, and one with a
 *    SCATTER, or a SCAN of linked parts, no other root
 *  - a group stays below the limits of plan/fusion_cost.h, unless one of its roots alone exceeds
 *    them
 *  - the two sides of a refusal are roots of two groups */
#ifndef TCI_PLAN_FUSION_GROUPS_H
#define TCI_PLAN_FUSION_GROUPS_H

#include "../graph/contraction_descriptor.h"
#include "../kernel/lower_graph.h"
#include "../loop/schedule.h"
#include "plan.h"
#include "fusion_refusal.h"

typedef enum tci_root_kind {
    TCI_ROOT_VALUE,
    TCI_ROOT_REDUCE,
    TCI_ROOT_CONTRACT,
    TCI_ROOT_SCAN,
    TCI_ROOT_SCATTER,
    TCI_ROOT_REPEAT,
    TCI_ROOT_CUSTOM, /* a call of a user function, or a collective: a group of its own */
    TCI_ROOT_KINDS
} tci_root_kind;

typedef struct tci_read {
    tci_node *node; /* what is read, */
    int32_t root;   /* and its number */
    bool pure;
    bool barred; /* through a BARRIER: then it is not pure */
    /* per axis of what is read: the reader's domain axis, -1 where the size is 1 */
    int32_t *axes;
} tci_read;

typedef struct tci_root {
    tci_node *node;
    uint8_t kind;
    bool is_output;
    int32_t group;
    int32_t n_domain, n_out; /* domain axes; the first n_out index the output */
    tci_dim *domain;
    /* Per axis of the node: how many positions along it the stage does not traverse but lists, with
     * a store for each (the domain has size 1 there); 1: it traverses them. No group reads such a
     * root that it makes */
    int32_t *listed;
    int32_t n_listed;
    int32_t *out_axis; /* per axis of the node: its domain axis */
    int32_t *outer_of; /* per domain axis: the group's outer axis, -1 inner */
    int32_t *inner_of; /* in a group that keeps rows: its inner axis, -1 outer */
    tci_read *reads;
    int32_t n_reads, cap_reads;
    tci_node **leaves;
    int32_t n_leaves, cap_leaves; /* distinct leaves read */
    tci_node **waits;
    int32_t n_waits, cap_waits; /* roots that its BARRIERs wait for */
    /* nodes evaluated, once per distinct index */
    tci_node **inlined;
    int32_t n_inlined;
    int32_t weight, n_operands; /* of these evaluations; distinct leaves and reads */
    int32_t round;              /* in which all this was found */
    int32_t buffer;             /* where its value is kept; -1: nowhere */
    /* buffers that also get it (program outputs) */
    int32_t *outputs;
    int32_t n_outputs, cap_outputs;
} tci_root;

/* A root as a probe of it found it, and what one found before. */
typedef struct tci_found_root {
    tci_root root;
    struct tci_found_root *next;
} tci_found_root;

typedef struct tci_group {
    int32_t n_outer;
    tci_dim *outer;
    int32_t *roots;
    int32_t n_roots, cap_roots;
    int32_t *deps;
    int32_t n_deps, cap_deps; /* groups it reads from or waits for */
    int32_t *users;
    int32_t n_users, cap_users; /* while placing: groups with it in deps */
    bool has_reduce, has_contract, has_scan, has_scatter, has_repeat;
    const char *pattern; /* that made it of several (plan/fusion_patterns.c), NULL: none did */
    bool on_unit;        /* worth it only as attention (kernel/match_attention.h) */
    bool keeps;          /* its contractions keep rows: */
    int32_t n_inner;
    tci_dim *inner;             /* inner axes, which its roots share */
    int32_t weight, n_operands; /* of distinct nodes; what it reads */
    int32_t stamp;              /* of the last graph traversal */
    int32_t kernel;             /* as tci_scores_kernels.of says of a root; 0: of none */
} tci_group;

/* Reason that kept a root out of the group that has `source`. */
typedef struct tci_refusal {
    const tci_node *reader, *source;
    uint8_t why; /* tci_why (plan/fusion_refusal.h) */
} tci_refusal;

/* State before a root was placed (plan/undo_log.c): the group that it joined (-1: a new one), and
 * the lengths of the other lists. */
typedef struct tci_undo_mark {
    int32_t n_groups, n_refusals, n_facts;
    int32_t group;
    tci_group was;
} tci_undo_mark;
struct tci_pnode;
/* Saved data of a node. */
typedef struct tci_undo_fact {
    struct tci_pnode *of;
    int32_t home, n_homes, group, operand_of;
} tci_undo_fact;
typedef struct tci_undo {
    tci_undo_mark *marks;
    int32_t n_marks, cap_marks; /* one for each root */
    tci_undo_fact *facts;
    int32_t n_facts, cap_facts;
} tci_undo;

/* Nodes that are to be one kernel, as they compute pairs for themselves. */
typedef struct tci_scores_kernel {
    tci_node *product;       /* a contraction of them, */
    const tci_node *set;     /* the first pair of the graph before, */
    const tci_node *copied;  /* that of the set whose takers have copies; NULL: they have none, */
    uint64_t summed;         /* and the axes of pairs that the kernel sums */
    bool alone;              /* the kernel takes no other nodes, and its operands are in memory */
    int32_t value_columns;   /* if it has no taker, of a row of a taker elsewhere; else 0 */
    bool apart, shares;      /* takers have kernels each; takers of copies share these */
    const tci_node **takers; /* in the graph before, if they have scores of their own */
    int n_takers;
} tci_scores_kernel;
typedef struct tci_scores_kernels {
    tci_table of; /* int32_t: the number of a node's kernel, from 1 on; 0: it has none */
    tci_scores_kernel *items;
    int n, cap;
} tci_scores_kernels;

/* Reads along one axis of a value, through layout and elementwise ops. */
typedef struct tci_assoc_axis {
    double along; /* elements of the largest source that has stride 1 along it */
    bool joined;  /* everything traverses it and the axis before it as one */
} tci_assoc_axis;

/* The association class of a REDUCE or SCAN (plan/reduction_lanes.c). */
typedef struct tci_association {
    bool known;
    bool lanes; /* LANES(n/near) or BLOCK_SCAN(n); else CHAIN */
    int16_t n;
    uint8_t near;
    int16_t run;          /* LANES: this many of its axes, the last ones, are the axis of lanes */
    tci_assoc_axis *axes; /* of any node, from which the class of others may follow; NULL: not
                           * looked at */
} tci_association;

/* Facts that decide the reduction order which a matrix unit gives a contraction. */
typedef struct tci_unit_facts {
    tci_table *stored; /* set of what has memory before anything is grouped */
    tci_table of;      /* int32_t: of contractions that were asked for 1 + tci_korder */
    tci_table through; /* set of layout ops that get no memory, though a reader would divide less
                        * or they are outputs: a unit reads its operand through them */
} tci_unit_facts;

typedef struct tci_fusion {
    tci_scratch *s;
    tci_table *associations; /* a tci_association for each node; NULL: classes follow from what is
                              * reproducible */
    tci_unit_facts *units;   /* NULL: units take what has a form for them, as on a CPU */
    const struct tci_fusion *like; /* an earlier one of the same graph, whose probes may hold; or
                                    * NULL */
    bool reproducible;             /* tci_machine.reproducible */
    bool no_fusion;                /* tci_machine.no_fusion */
    bool blocks;                   /* for a GPU */
    bool groups_launches;          /* blocks: small kernels are joined (plan/horizontal_fusion.c) */
    const tci_scores_kernels *pairs; /* what is to be one kernel */
    bool *joined;                    /* per item of it: is it one? */
    const tci_table *late;           /* set of what is computed after the peak; NULL: none is */
    tci_node_list nodes;             /* everything the outputs need, inputs first */
    tci_root *roots;
    int32_t n_roots, cap_roots;
    tci_group *groups;
    int32_t n_groups, cap_groups;
    int32_t *order;       /* groups in execution order */
    int32_t stamp;        /* counts the traversals that mark what they met */
    int32_t round;        /* the one at hand, from 1 on; 0 before the first */
    int32_t first_forced; /* position of the first value that it forced into memory */
    tci_undo trail;
    int32_t n_placed, n_probed; /* roots, in all rounds: the work that was done; */
    int32_t n_lowered;          /* groups that took no kernel of an earlier fusion */
    tci_node **walk;
    int cap_walk;        /* a stack */
    tci_table known;     /* a tci_pnode for each of nodes */
    tci_table probes;    /* of a node the tci_found_root that was found last, or NULL */
    tci_plan_made *made; /* per group: its kernel; NULL: none is lowered */
    tci_refusal *refusals;
    int32_t n_refusals, cap_refusals; /* of the last round */
} tci_fusion;

/* Data of each node while a plan is made. */
typedef struct tci_pnode {
    int32_t place;     /* in tci_fusion.nodes */
    int32_t kernel;    /* as tci_scores_kernels.of says */
    int32_t root;      /* its index, or -1 */
    tci_root *kept;    /* the root that it was when it was last undone, or NULL */
    bool forced;       /* is a root, from the next round on if it is none in this one */
    bool apart;        /* is a root, and no group that makes it holds a reader of it */
    int32_t forced_in; /* the round that forced it */
    bool is_output;
    bool drawn;       /* made of random numbers and nothing that is in memory */
    bool guards;      /* a comparison of indices: nothing to store (tci_kernel_compare) */
    uint8_t index;    /* depth of a sum of indices and numbers, from 1 on; 0: it is none */
    uint8_t why;      /* forced for this reason (plan/fusion_refusal.h) */
    bool once, asked; /* no run changes its operands; runs read it (init_section.c) */
    int32_t buffer;   /* of a leaf; of a LITERAL its slot in the program */
    int32_t n_uses, depth, moves, reshapes; /* of the depth rules */
    int32_t home, n_homes;                  /* who evaluated it last, and how often that changed */
    int32_t group, operand_of;              /* the last group that evaluated it, that read it */
    int32_t n_here;                         /* how often the root at hand evaluates it */
    int32_t at; /* position in the list of recompute_or_store.c's division */
    /* the last traversal (tci_fusion.stamp) that did so with it */
    int32_t met, walked, counted, needed, covered, turns, done;
} tci_pnode;
TCI_INLINE tci_pnode *tci_pnode_of(const tci_fusion *f, const tci_node *n)
{
    return (tci_pnode *)tci_table_item(&f->known, n);
}

/* True if kernel number `kernel` of pairs, 0: none, takes no other nodes. */
static inline bool tci_group_is_alone(const tci_fusion *f, int kernel)
{
    return kernel > 0 && f->pairs->items[kernel - 1].alone;
}

/* True if the node has its own memory under every plan. */
static inline bool tci_plan_is_leaf(const tci_node *n)
{
    return tci_op_is(n->op, TCI_IS_MEMORY);
}

/* The value in memory where n is read: n itself, or the operand of a BARRIER. */
static inline tci_node *tci_plan_source(tci_node *n)
{
    while (n->op == TCI_OP_BARRIER) {
        n = n->in[0];
    }
    return n;
}

/* Number of inputs of n that are evaluated with it, that is, without those that a BARRIER waits
 * for. */
static inline int tci_plan_n_evaluated(const tci_node *n)
{
    return n->op == TCI_OP_BARRIER ? 1 : n->n_in;
}

/* Copies of f32 for a matrix unit pay from this many products of each copied element on, and of
 * all; of bytes, which warps multiply in their layout, from this many. */
enum {
    TCI_KMAJOR_REUSE = 128,
    TCI_KMAJOR_LEAST = 1 << 27,
    TCI_KMAJOR_BYTES_REUSE = 256,
    TCI_KMAJOR_BYTES_LEAST = 1 << 30
};

typedef struct tci_router tci_router; /* plan/contraction_route.h */
/* The graph as plan/decompose.c changes it. */
typedef struct tci_algo {
    tci_scratch *s;
    tci_graph *g;
    tci_machine machine;
    tci_str *orders;          /* lines on sums that are cut, and on those that are not to be */
    tci_table *forced;        /* a set: what gets memory whatever is planned */
    tci_node *const *changed; /* leaves that the program's effects change */
    int n_changed;
    tci_table *whole;  /* a set: contractions that are not made of parts, f16 or bf16 values, or
                              * copies of f32 */
    tci_table *images; /* a set: those with channels last (layout_propagation.c) */
    tci_table *panels; /* as in tci_plan; NULL: nothing is computed once */
    tci_table *associations; /* as in tci_fusion */
    tci_str
        *routes; /* lines on how contractions are computed (plan/contraction_route.c); NULL: none */
    tci_plan_contests *contests; /* contractions that several routes fit; NULL: none is noted */
    const tci_router *router;    /* set by tci_plan_algorithm */
} tci_algo;
static inline void tci_algo_force(const tci_algo *a, tci_node *n)
{
    n = tci_plan_source(n);
    if (!tci_plan_is_leaf(n)) {
        tci_table_add(a->forced, n);
    }
}

/* plan/shape_queries.c: elements of leaf n's memory from its first to its last one. */
TCI_FN tci_dim tci_plan_leaf_extent(const tci_node *n);
/* plan/decompose.c: rewrites one node into several where that is how it should be computed (split
 * of large reductions, wide concatenations, operands of contractions) and forces roots. */
TCI_FN void tci_plan_algorithm(const tci_algo *a, tci_node **roots, int n_roots);
/* Sets of pairs, each by its first one, for whose kernels there was no form: with other nodes in
 * them, with several takers, with takers as they are, and at all; with copies that the takers
 * share; and takers that have none with scores of their own. */
typedef struct tci_scores_refused {
    tci_table alone, joint, lines, whole, shared, takers;
} tci_scores_refused;
static inline tci_scores_refused tci_scores_none(tci_scratch *s)
{
    const tci_table none = tci_table_in(s, sizeof(bool));
    return (tci_scores_refused){none, none, none, none, none, none};
}
/* plan/attention_recompute.c. Changes the roots to what is to be computed; sets that are refused as
 * a whole are left as they are. */
TCI_FN void tci_plan_pairs(const tci_algo *a, tci_node **roots, int n_roots,
                           const tci_scores_refused *refused, tci_scores_kernels *out);
/* On a GPU: contractions that are to be kernels of attention are left whole. */
TCI_FN void tci_scores_keep_whole(const tci_algo *a, tci_node *const *roots, int n_roots);
/* True if that kind of machine has kernels that recompute scores. */
TCI_FN bool tci_scores_taken(tci_machine machine);
/* plan/chunked_attention.c: outputs whose attention has no array of pairs, where plan p has one;
 * false: it has none, or they stay as they are. */
TCI_FN bool tci_plan_chunked_attention(const tci_algo *a, const tci_plan *p, tci_node **outputs,
                                       int n_outputs);
/* plan/layout_propagation.c: which values are in memory with their channels last; changes the
 * roots. */
TCI_FN void tci_plan_layout(const tci_algo *a, tci_node **roots, int n_roots);
/* True if the machine has a matrix unit that reads boxes of images, and options allow it. */
static inline bool tci_plan_has_image_unit(tci_machine machine)
{
    return machine.block_threads > 0 && machine.matrix_units > 0 && !machine.reproducible;
}
/* plan/conv_layout.c: the bf16 or f16 value behind operand x, of known sizes, below windows,
 * padding, other layout ops and a widening, unless one of these is in memory; NULL: there is
 * none. */
TCI_BLOCK_FN tci_node *tci_plan_image(const tci_algo *a, tci_node *x);
/* The whole axis of that value that is axis a of x; -1: none is. */
TCI_BLOCK_FN int tci_plan_image_axis(const tci_node *x, const tci_node *source, int a);
/* plan/shape_queries.c: the axis of a reshaped node's input that is its axis a; -1: none is. */
TCI_FN int tci_plan_image_reshaped(const tci_node *n, int a);
/* plan/depthwise_wgrad.c: where the channels are in the image of operand `which` of contraction n,
 * the gradient of filters of one channel each; -1: n is none. */
TCI_BLOCK_FN int tci_plan_alone_axis(const tci_algo *a, const tci_node *n, int which,
                                     tci_node **image);
/* plan/look_through_broadcast.c: the value that x is, spread along axes and with its axes moved;
 * at[i]: which of its axes axis i of x is, -1: none of several elements. */
TCI_FN const tci_node *tci_broadcast_source(tci_scratch *s, const tci_node *x, int *at);
/* plan/hoist_factors.c: sum n with the factors outside that are the same along what it sums;
 * NULL: there are none, or it is not cut in chunks. */
TCI_FN tci_node *tci_plan_factored_sum(const tci_algo *a, tci_node *n);
/* plan/winograd.c: contraction n of windows of 3 x 3 elements with fewer products, m x m results at
 * once, m = 2 or 4 (0: as it chooses); NULL: it stays as it is. */
TCI_FN tci_node *tci_plan_winograd_by(const tci_algo *a, tci_node *n, int m);
/* plan/int8_dot.c: contraction n of bytes that differ in their signs, where it takes four products;
 * else n. */
TCI_FN tci_node *tci_plan_signs(const tci_algo *a, tci_node *n);
/* plan/scatter_sort.c: SCATTER n as ranges of an order; NULL: it stays as it is. */
TCI_FN tci_node *tci_plan_order(const tci_algo *a, tci_node *n);
/* plan/split_scan.c: SCAN n over parts of its axis; NULL: it stays as it is. */
TCI_FN tci_node *tci_plan_scan(const tci_algo *a, tci_node *n);
/* On a GPU: true if it is better to cut this many rows than to go through them line by line. */
TCI_FN bool tci_plan_has_lines(tci_dim rows, tci_dim row, tci_dim line);
/* There, true if rows of one line are enough to leave each whole, as a block's registers hold it.
 */
TCI_FN bool tci_plan_has_rows(tci_dim rows, tci_dim row, tci_dim line);
/* plan/sort.c: TOPK n as what finds its positions. */
TCI_FN tci_node *tci_plan_topk(const tci_algo *a, tci_node *n);
/* plan/split_k.c: contraction n as a sum of parts, with a line in `orders`; NULL: it stays as it
 * is. */
TCI_FN tci_node *tci_plan_parts(const tci_algo *a, tci_node *n);
/* plan/trial_lowering.c: tci_root_kind of what computes n; */
TCI_FN uint8_t tci_root_kind_of(const tci_node *n);
/* node n as the next root, with what it reads and evaluates: its number. */
TCI_FN int tci_root_add(tci_fusion *f, tci_node *n);
/* Number of roots that precede r because r reads them or waits for them; and root number i of them.
 */
static inline int tci_root_n_before(const tci_root *r)
{
    return r->n_reads + r->n_waits;
}
TCI_FN int tci_root_before(const tci_fusion *f, const tci_root *r, int i);
/* The buffer of n, which is in memory. */
TCI_FN int tci_root_buffer_of(const tci_fusion *f, tci_node *n);
/* plan/recompute_or_store.c. By what recomputation is counted: */
typedef enum tci_store_mode {
    TCI_STORE_BY_GROUP,
    TCI_STORE_BY_ROOT,
    TCI_STORE_NOTHING /* and forces nothing */
} tci_store_mode;
TCI_FN void tci_store_cut_depth(tci_fusion *f); /* before the first round, */
TCI_FN void tci_store_begin(tci_fusion *f);     /* and what no round changes */
/* Root number `root` was placed: notes what it evaluates, forces what repeats or divides it. */
TCI_FN void tci_store_note(tci_fusion *f, int root, tci_store_mode mode);
/* Size that node n adds to the kernel (plan/fusion_cost.h) of root r. */
TCI_FN int tci_store_weight(const tci_fusion *f, const tci_root *r, const tci_node *n);
TCI_FN bool tci_store_is_large(const tci_root *r);
TCI_FN void tci_store_report(tci_fusion *f, tci_str *why);
enum { TCI_GROUP_MAX_ROOTS = 32 }; /* of one kernel: each is a stage that looks at all values */
/* plan/undo_log.c. The last root is about to be placed; */
TCI_FN void tci_undo_begin(tci_fusion *f);
/* that will change this group, and what is known of this node. */
TCI_FN void tci_undo_group(tci_fusion *f, int group);
TCI_FN void tci_undo_node(tci_fusion *f, tci_pnode *p);
/* Undoes the roots whose nodes have this position or a later one. */
TCI_FN void tci_undo_undo(tci_fusion *f, int place);
/* plan/init_section.c: marks what is computed once, and forces into memory what each run reads of
 * it. changed: leaves that the program's effects change. */
TCI_FN void tci_init_find(tci_fusion *f, tci_node *const *outputs, int n_outputs,
                          tci_node *const *changed, int n_changed);
/* Its steps become the first ones, and what the others read of it is kept. */
TCI_FN void tci_plan_init_section(tci_scratch *s, tci_plan *p, tci_node *const *inputs,
                                  int n_inputs);
/* plan/fusion_groups.c; associations: class of each reduction (plan/reduction_lanes.c); like: an
 * earlier fusion of the same graph, whose probes of roots are reused, NULL: none; forced: of
 * tci_algo; cuts: the set of values that are stored and read from memory by all their consumers
 * (plan/fission.c), NULL: none; late, units: as in tci_fusion. Reports in `why`, unless it is NULL,
 * refusals and materialized values. */
TCI_FN tci_fusion *tci_plan_fuse(tci_scratch *s, tci_node *const *outputs, int n_outputs,
                                 tci_table *associations, const tci_fusion *like,
                                 const tci_table *forced, const tci_table *cuts,
                                 const tci_table *late, const tci_scores_kernels *pairs,
                                 tci_node *const *changed, int n_changed, tci_machine machine,
                                 tci_unit_facts *units, tci_str *why);
/* plan/remat.c: how many values of a plan are recomputed, and their bytes. outputs are changed to
 * the nodes that the next plan is to compute; forced grows by the values materialized in it; in
 * pairs nodes are paired with those that they replace; late is the set of recomputed nodes after
 * the peak. */
typedef struct tci_remat_result {
    int n;
    double bytes;
} tci_remat_result;
TCI_FN tci_remat_result tci_plan_remat(tci_scratch *s, tci_graph *g, const tci_plan *p, bool all,
                                       tci_node **outputs, int n_outputs, tci_table *forced,
                                       tci_scores_kernels *pairs, tci_table *late);
/* plan/step_order.c: the step that runs each group, by itself or in a merged kernel. */
TCI_FN int32_t *tci_plan_steps_of_groups(tci_scratch *s, const tci_plan *p);
/* A line in p->again on the values of regions (tc_checkpoint) that p computes again. */
TCI_FN void tci_plan_report_regions(tci_scratch *s, tci_graph *g, tci_plan *p);
/* A round: places anew what comes from position `from` on; first_forced says whether there must be
 * another. */
TCI_FN void tci_group_round(tci_fusion *f, int from, tci_store_mode mode);
/* Notes that `reader` is kept out of the group of `source`. */
TCI_FN void tci_group_refuse(tci_fusion *f, const tci_node *reader, const tci_node *source,
                             tci_why why);
/* plan/fission.c. Prices of the kernels of all plans of a job. */
typedef struct tci_prices_item {
    tci_hash text;
    tci_price price;
    bool settled; /* no cut of such a kernel pays */
} tci_prices_item;
typedef struct tci_prices {
    tci_scratch *s;
    tci_machine machine;
    double whole_ns; /* of all kernels of the plan at hand */
    tci_prices_item *items;
    int n, cap;
} tci_prices;
enum { TCI_PRICE_EDGES = 6 };
/* A group that is priced far above its floor, the values that may be stored instead of it, and of
 * the trials the best one that pays. */
typedef struct tci_suspect {
    int32_t group;
    double floor, excess; /* ns; of its price over that */
    bool waits;           /* for a neighbour of higher excess */
    tci_node *edges[TCI_PRICE_EDGES];
    int n_edges;
    int best;             /* of edges; -1: none pays */
    double before, after; /* ns of the same nodes in the plan and in that trial */
    int nearest;          /* of the edges whose trial does not pay the one that is cheapest; -1 */
    int n_tried;
    double kept, refused; /* as before and after, of that trial */
} tci_suspect;
TCI_FN int tci_price_suspects(tci_prices *all, const tci_plan *p, tci_suspect **list);
/* The trials of s, a suspect of plan p, are over. */
TCI_FN void tci_price_settle(tci_prices *all, const tci_plan *p, const tci_suspect *s);
/* `trial`, which is in scratch `of`, stores number `edge` of s->edges. */
TCI_FN void tci_price_try(tci_scratch *of, tci_prices *all, const tci_plan *p,
                          const tci_plan *trial, int edge, tci_suspect *s);
/* plan/fusion_patterns.c: makes one of groups that are better as one. */
TCI_FN void tci_pattern_apply(tci_fusion *f, tci_machine machine);
/* plan/print.c: the text of the groups, the same for the same graph in every process. */
TCI_FN void tci_fusion_print(tci_str *out, const tci_fusion *f);
/* The parts of SCAN n's axis, which its domain has, if it has starts, or its parts are linked:
 * TCI_SCAN_PARTS of them, which publish their totals to each other within one kernel. 0: none. */
enum { TCI_SCAN_PARTS = 3 }; /* the attribute */
TCI_FN tci_dim tci_root_parts(const tci_node *n);
TCI_FN bool tci_root_is_linked(const tci_node *n);
/* The positions that r lists are numbered; `domain` at position `place`. */
TCI_FN void tci_root_at_place(tci_kernel *k, const tci_root *r, int place, int *domain);
/* Index of axis `axis` of r's node, given that of each domain axis. */
TCI_FN int tci_root_index(tci_kernel *k, const tci_root *r, const int *domain, int axis);
/* Index of input `input` of a REDUCE, CONTRACT or SCAN root, given that of each domain axis. */
TCI_FN const int *tci_plan_input_index(tci_lower *l, const tci_root *r, int input,
                                       const int *domain);
/* How a SCATTER root stores: src line by line; each element of x over its segment of a sorted
 * order; or all elements of src in parallel. */
typedef enum tci_put { TCI_PUT_NOTHING, TCI_PUT_LINES, TCI_PUT_STRETCHES, TCI_PUT_APART } tci_put;
enum { TCI_SCATTER_APART = 2 }; /* the attribute */
TCI_FN tci_put tci_root_puts(const tci_node *n);
/* The value and position that a SCATTER root stores for the point `domain`. */
TCI_FN tci_lower_placed tci_plan_scatter_put(tci_lower *l, const tci_root *r, const int *domain);
/* plan/loops.c. Lists the loops that the roots need, whose bodies are none of the nodes from
 * then on: results become memory that RESULTs stand for, and what they read is forced. */
TCI_FN void tci_repeat_find(tci_scratch *s, tci_plan *p, tci_graph *g, tci_node **roots, int n,
                            tci_node *const *inputs, int n_inputs, tci_table *forced,
                            tci_machine machine);
/* The step of group g, which has_repeat, and k, an empty kernel, as what stands for it. */
typedef struct tci_repeat_maker {
    tci_scratch *s;
    tci_graph *g;
    tci_node *const *literals;
    int n_literals;
    tci_machine machine;
} tci_repeat_maker;
TCI_FN tci_step tci_repeat_step(const tci_repeat_maker *m, tci_plan *p, const tci_fusion *f,
                                const tci_group *g, tci_kernel *k);
/* The steps are in order and have memory: those of bodies take their places. */
TCI_FN void tci_repeat_place(tci_scratch *s, tci_plan *p);
/* plan/loop_in_kernel.c: each loop with little work per iteration becomes one step, if the machine
 * takes it.
 */
TCI_FN void tci_plan_fuse_loops(tci_scratch *s, tci_plan *p, tci_machine machine);
/* Kernels of no step go. */
TCI_FN void tci_plan_drop_kernels(tci_scratch *s, tci_plan *p);
/* plan/kernel_origin.c: canonical numbers of the nodes that the group computes; 0: how many of
 * them. */
TCI_FN void tci_plan_find_origins(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                  tci_step *step);
/* True if a kernel evaluates n, a node that the probe of one of its roots visited; false if it
 * reads n from memory, or n is a root, which its group lists. */
TCI_FN bool tci_plan_evaluates(const tci_fusion *f, const tci_node *n);
/* Weight of an op in the estimate of what bounds a kernel. */
TCI_FN double tci_plan_op_weight(int op);
/* The end of a line of p->why: a tab, the canonical numbers + 1 of reader and source (0: none) and
 * the bytes that both together would save. debug/explain.c reads it; */
TCI_FN void tci_why_end(tci_str *why, const tci_node *reader, const tci_node *source);
/* the lines without these. */
TCI_FN void tci_why_plain(tci_str *out, const char *why);
/* plan/verify.c */
TCI_FN void tci_fusion_verify(tci_scratch *s, const tci_fusion *f);
/* plan/lower_group.c: one group as a kernel. operands_out: buffer or leaf behind each operand;
 * literals_out: the LITERAL node of each slot. */
typedef struct tci_lowered {
    tci_kernel *kernel;
    int32_t *operand_buffers; /* buffer index in the plan, */
    tci_dim *offsets;         /* and at which byte of it the kernel's operand begins */
    tci_node **literals;
    tci_node **dividing; /* RESHAPEs that leave divisions in its index expressions */
    int32_t n_dividing;
    bool lacks_unit; /* its contraction's order is a unit's, which has no form for this kernel */
} tci_lowered;
TCI_FN tci_lowered tci_plan_lower(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                  tci_plan *plan, tci_machine machine);
/* The tci_korder that a matrix unit gives CONTRACT root r, whatever shares its kernel: MATRIX, TF32
 * or CHAIN where none takes it as a kernel by itself over operands that are in memory, but for
 * layout ops, padding and widening. TCI_CLASS_ANY: sums of integers, and on a CPU the kernel
 * decides. */
TCI_FN int tci_plan_unit_of(const tci_fusion *f, const tci_root *r, tci_machine machine);
/* True unless kernel k of group g gives its contraction another order than that. */
TCI_FN bool tci_plan_has_unit(const tci_fusion *f, const tci_group *g, const tci_kernel *k);
/* plan/incremental_lowering.c: notes in `made` what the next plans of the same graph need to take
 * that lowering of p's group; */
TCI_FN void tci_reuse_note(tci_scratch *s, const tci_plan *p, const tci_lowered *low,
                           tci_plan_made *made);
/* what an equal group of f->like was lowered to, with the buffers of f's plan in *low; NULL: there
 * is none. */
TCI_FN const tci_plan_made *tci_reuse_find(tci_scratch *s, const tci_fusion *f, int group,
                                           tci_lowered *low);
/* g is a collective's, which tci_plan_lower starts: the step that waits for it. */
TCI_FN tci_lowered tci_plan_lower_wait(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                       tci_plan *plan);
/* The collective that a step is of (of either phase), or NULL. */
static inline const tci_comm_step *tci_plan_comm(const tci_plan *p, int step)
{
    const tci_custom_call *call = p->kernels[p->steps[step].kernel]->call;
    return call && call->comm.phase ? &call->comm : NULL;
}
/* plan/reduction_lanes.c: decides for all folds that the roots need, where `found` has none yet; on
 * a GPU (blocks) only what it must know before contractions are replaced. */
TCI_FN void tci_association_find(tci_scratch *s, tci_table *found, tci_node *const *roots,
                                 int n_roots, bool blocks);
/* Association of n, which is in the table or was made later. */
TCI_FN tci_association tci_association_of(tci_table *found, const tci_node *n, bool blocks);
/* Fold n has class `as`, unless it has one. */
TCI_FN void tci_association_as(tci_table *found, const tci_node *n, tci_association as);
/* plan/reduction_order.c. The class of REDUCE or SCAN n, and of all those of group g: those whose
 * results follow from no order have that of the others. */
TCI_FN tci_association tci_class_of(const tci_fusion *f, const tci_node *n);
TCI_FN tci_association tci_class_of_group(const tci_fusion *f, const tci_group *g);
/* True if one kernel may hold REDUCEs or SCANs a and b. */
TCI_FN bool tci_class_is_same(const tci_fusion *f, const tci_node *a, const tci_node *b);
/* True if a kernel that keeps rows may hold REDUCE n. */
TCI_FN bool tci_class_may_keep(const tci_fusion *f, const tci_node *n);
/* Number of last axes that form one axis of lanes, given LANES; else 0. */
TCI_FN int tci_class_run(const tci_fusion *f, const tci_node *n);
/* The value x whose largest elements m SUM n of exp(x - m) is made with in one pass (class ONLINE),
 * on a CPU; NULL: it is not. */
TCI_FN tci_node *tci_class_online_of(const tci_fusion *f, const tci_node *n);
/* The products of a part of CONTRACT n's sums (SPLIT), 0: they are chains. */
TCI_FN int tci_class_part_of(const tci_node *n, tci_machine machine);
/* True if the last two axes that CONTRACT root r sums, over windows, change places on a CPU:
 * the one along which neighbouring rows of positions meet the same row of an image comes last. */
TCI_FN bool tci_class_turns(const tci_fusion *f, const tci_root *r);
/* As tci_plan_unit_of sees an operand of a contraction: is n a layout op, padding or a widening
 * that is not stored; and what is n read from? */
TCI_FN bool tci_class_moves(const tci_fusion *f, const tci_node *n);
TCI_FN tci_node *tci_class_operand_of(const tci_fusion *f, tci_node *n);
enum { TCI_CLASS_ANY = -1 };
/* The classes of units and instructions that kernel k's reductions have; unit: the one that its
 * contraction may have. */
TCI_FN void tci_class_choose(tci_kernel *k, tci_machine machine, int unit);
/* Lines on which class kernel k of group g would have if it need not be reproducible. */
TCI_FN void tci_class_report(const tci_fusion *f, const tci_group *g, tci_kernel *k,
                             tci_machine machine, tci_str *orders);
/* REDUCE n as reductions whose classes do not follow from sizes. */
TCI_FN tci_node *tci_class_reproducible(tci_scratch *s, tci_graph *g, tci_node *n);
/* plan/memory.c: order, lifetimes, arena offsets and input/output aliases of a step list. */
TCI_FN void tci_plan_memory(tci_scratch *s, tci_plan *p, tci_machine machine);
/* The buffer of an input or output; -1: it has none. */
TCI_FN int tci_plan_port(const tci_plan *p, uint8_t kind, int index);
/* True if step allows buffer `out` to alias input `in`. */
TCI_FN bool tci_plan_step_in_place(tci_scratch *s, const tci_plan *p, int step, int out, int in);
/* plan/step_order.c: the steps in an order that needs less memory; the bytes of temporaries that
 * are then needed at once. */
TCI_FN int64_t tci_plan_sequence(tci_scratch *s, tci_plan *p);
/* Per step: how many others must follow it, one after the other. */
TCI_FN int32_t *tci_plan_distances(tci_scratch *s, const tci_plan *p);
/* An order of the steps in which those of one unit (a number below n_steps for each step) are
 * neighbours, and else as they are. Units must not wait for each other in a circle. */
TCI_FN int32_t *tci_plan_unit_order(tci_scratch *s, const tci_plan *p, const int32_t *unit);
/* plan/horizontal_fusion.c: small kernels as one launch. peak: what tci_plan_sequence said. */
TCI_FN void tci_plan_join(tci_scratch *s, tci_plan *p, tci_machine machine, int64_t peak);

#endif
