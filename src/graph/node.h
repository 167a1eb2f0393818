/* graph/node.h - the graph: a hash-consed SSA DAG of ops.
 *
 * Invariants (checked by graph/verify.c):
 *  - inputs precede users; no size is negative for any value of its symbols (base/dim.h); element
 *    counts fit int64 for all of them
 *  - equal (op, dtype, inputs, attributes, shape) is one node, except of the ops that are unique
 *    (ops/op_info.h)
 *  - elementwise operands have one dtype (builders insert CAST) and one shape (builders insert
 *    RESHAPE + EXPAND); movement nodes keep their input's dtype
 *  - REDUCE, ARG and SCAN nodes drop or keep exactly the axes their attributes say
 *
 * Attributes by op (int64 words, all part of every key; their names and kinds are the lists of
 * ops/table.h: a SIZE or PLACE may be symbolic, as sizes are):
 *   REDUCE rows      the reduced axes, ascending; result drops them (keepdims is a RESHAPE on top).
 *                    ARGMAX, ARGMIN: one axis
 *   IOTA             none; shape [n], i64
 *   RANDOM           none; inputs key and stream, 0-d u64; u32 or u64. An element is a function of
 *                    both and of its row-major index in the shape (kernel/random.c), of nothing
 *                    else: equal draws are equal values, so they are one node like all others,
 *                    and a draw that is to differ differs in its key or its stream
 *   RESHAPE, EXPAND  none (the shape says it; EXPAND keeps the rank)
 *   PERMUTE          rank words: output axis i is input axis attr[i]
 *   SLICE            2 * rank words: start, step per axis (flip: start n-1, step -1)
 *   PAD              rank words: how many before each axis (negative crops); input 1 is the 0-d
 *                    fill
 *   CAT              axis
 *   GATHER           axis; inputs x, index (any integer dtype); shape of index;
 *                    index.shape[d] <= x.shape[d] off the axis. -n..-1 count from the end; an index
 *                    outside makes the run return TC_ERR_INDEX (the element is then 0)
 *   WINDOW           4 words per windowed axis: axis, kernel, stride, dilation. Output: input axes
 *                    with the windowed sizes replaced by floor((n - d*(k-1) - 1)/s) + 1, then one
 *                    axis of size kernel per entry, appended in order:
 *                    out[.., o, .., k] = in[.., o*s + k*d, ..]
 *   SCAN             axis, reverse, mode (tci_mode, but for SET: what the elements so far combine
 *                    to, inclusive; or from the last element on). A second input, of ADD alone,
 *                    which only plan/ gives: starts: the initial accumulator of each equal-sized
 *                    segment of the axis, in scan order, in x's compute dtype
 *   SCATTER          axis, mode (tci_mode); inputs x, index (any integer dtype), src; shape of x,
 *                    index and src of one shape, off the axis no larger than x's. Element by
 *                    element of src along the axis, in order, each is applied at the position that
 *                    its index gives, so contributions to one element accumulate in src order,
 *                    after x's own value. Indices as of GATHER. ADD never of f16, bf16.
 *                    apart: SET only; index has x's shape, and along the axis each index occurs
 *                    exactly once, which is not checked
 *   SEGMENT          axis, mode; inputs x, src, order, starts (i64 of one axis; one more than x has
 *                    elements along the axis); shape of x, and src's but for the axis. Element i
 *                    takes in elements order[starts[i]] .. order[starts[i + 1] - 1] of src along
 *                    the axis, in that order, as SCATTER does. Made by plan/scatter_sort.c alone
 *   BOUND            none; body parameter of a REPEAT; used only inside that body
 *   REPEAT           counts of carries, inputs, held values and outputs; length: iterations;
 *                    reverse: the last element of the inputs first. stops: 0, or the
 *                    number of a carry and 1. No value of its own. Operands: graph/loop_node.h
 *   RESULT           which of a REPEAT's results (graph/loop_node.h); input 0 is the REPEAT. In
 *                    plan/ its inputs are those that the REPEAT has outside of its body, and the
 *                    second word is the number of the loop there
 *   CONTRACT         rank_a, rank_b, rank_out, then a label per axis of a, b and out. Labels are
 *                    small ints; equal labels have equal sizes; a label missing from out is summed.
 *                    Result dtype = operand dtype, or f32 for f16 and bf16; accumulates in its
 *                    compute dtype (integers wrap)
 *   SOFTMAX, LOG_SOFTMAX   axis
 *   MEAN             axes, ascending
 *   LAYER_NORM       n_axes, axes, has_weight, has_bias; inputs x, eps (0-d f64 literal), weight?,
 *                    bias?
 *   CROSS_ENTROPY    none; logits [N, C] or [N, C, ...] or [C]; target of class indices
 *   STOP_GRADIENT    none
 *   WITH_DERIVATIVE  none; inputs f, value, of one shape and dtype: value is what f is at this
 *                    point, computed another way, and its derivatives are those of f, which is
 *                    computed for derivatives alone
 *   SHARD            per axis the number of the communicator (ops/communicator.h) that it is split
 *                    over by tc_partition, or 0; x itself where the graph is not partitioned
 *   CONV_TRANSPOSE   groups, then stride, dilation and padding before the first element of each
 *                    axis of an image; x [N, C, sizes], w [C, O / groups, kernel]; result [N, O,
 *                    sizes], whose sizes determine the padding after the last element
 *   NAMED            call (tci_call_name), then words of the call's own; inputs: the result of the
 *                    call, then the call's operands, which only exporters read
 *                    (onnx/export_direct_ops.h)
 *   TOPK             axis, largest; i64, shape of x but k along the axis: indices of the first k
 *                    elements in sorted order, largest first or last; NaN is larger than all else,
 *                    and of equal elements (-0 and 0 are) the one of lower index comes first
 *   COLLECTIVE       verb (tc_comm_verb), how (tc_comm_how, never MEAN), number of the communicator
 *                    (ops/communicator.h), its ranks, peer (root, destination, source), number: 0
 *                    in the user's graph; in a compile's graph its position among the program's
 *                    collectives in the order in which they were made. Ranks are a first axis:
 *                    ALL_GATHER adds it, REDUCE_SCATTER takes it away, ALL_TO_ALL has it on both
 *                    sides; BARRIER gives a 0-d bool; all others the shape of input 0. Its dtype
 *   BARRIER          sinks; shape and dtype of input 0, which is stored and read only after it; the
 *                    others have any shape and are waited for. sinks: rewrite/ may materialize the
 *                    value that input 0 is a view of instead (made by gradients of regions)
 *   ASSIGN           none; inputs p, value: p is a DATA leaf whose storage is a parameter, of the
 *                    same shape and dtype. An effect: only ever a root of a program, committed at
 *                    the end of a run */
#ifndef TCI_GRAPH_NODE_H
#define TCI_GRAPH_NODE_H

#include "../base/dim.h"
#include "../base/hash.h"
#include "../base/str.h"
#include "../ops/op_info.h"

/* Tensor memory, counted. Borrowed memory belongs to the user. */
typedef struct tci_copies tci_copies; /* run/device_residency.c */
typedef struct tci_param tci_param;   /* run/param.c */
/* Owner of borrowed memory: its deleter is called, on any thread, when the last reference is gone.
 */
typedef struct tci_owner {
    void (*release)(struct tci_owner *owner);
} tci_owner;

typedef struct tci_storage {
    int32_t refs; /* changed only under the rules of run/buffer.c */
    bool borrowed;
    void *data; /* of a parameter: the newest value in host memory (run/param.c) */
    int64_t bytes;
    uint64_t version; /* atomic; raised when the bytes change: by tc_touch, or a run (ASSIGN) */
    tci_copies *residents, *ahead; /* on devices; the one that is newer than `data` */
    tci_param *param;              /* of a parameter: programs may change it (ASSIGN) */
    tci_owner *owner;              /* of borrowed memory; NULL: the user, who is not told */
} tci_storage;

/* Passes keep their data per node in side tables (graph/side_table.h). */
typedef struct tci_node {
    uint16_t op;
    int8_t dtype;  /* tc_dtype */
    bool stateful; /* a parameter, or computed from one: a run may change its value */
    int32_t rank, n_in, n_attr;
    struct tci_node **in;
    tci_dim *shape;
    int64_t *attr; /* those that are sizes are tci_dims */
    uint32_t id;   /* slot in its graph; ascending in creation order inside a compile's graph */
    uint32_t generation, scope;
    uint32_t n_users;      /* nodes of this graph that have it as an input, counted per operand */
    uint64_t hash;         /* of (op, dtype, shape, inputs, attributes) */
    struct tci_node *next; /* hash bucket chain */
    struct tci_node *scope_next;
    tci_value
        value; /* LITERAL, CONST: the number in `dtype`; INPUT, COLLECTIVE: counts up with each one
                  made */
    tci_storage *storage; /* DATA, and any node once evaluated; else NULL */
    tci_dim *strides;     /* DATA: elements per axis, may be 0 or negative; NULL = dense */
    int64_t offset;       /* DATA: elements from storage->data to element 0...0 */
    const char *name;     /* INPUT */
    tc_site site;         /* the user's line that made it */
    const char *call;     /* the public call that stands there, "tc_gather"; NULL: unknown */
    /* In a context's graph the region that was open (debug/string_intern.h), with
     * TCI_REGION_BACKWARD. In a compile's graph 1 + the canonical number of the node that it was
     * made for; 0: unknown. */
    uint32_t region;
} tci_node;
#define TCI_REGION_BACKWARD 0x80000000u /* made for the backward pass of that region */

/* True for a permanent value: a leaf with memory, or evaluated and independent of parameters. */
TCI_INLINE bool tci_node_is_value(const tci_node *n)
{
    return n->op == TCI_OP_DATA || (n->storage && !n->stateful);
}

/* Its words, some of them sizes. */
static inline const tci_dim *tci_node_dims(const tci_node *n)
{
    return tci_dim_list(n->attr);
}

static inline tci_dim tci_node_count(const tci_node *n)
{
    tci_dim count = 1;
    for (int i = 0; i < n->rank; i++) {
        count = tci_dim_mul(count, n->shape[i]);
    }
    return count;
}
/* Of its value in memory, typically. */
static inline double tci_node_value_bytes(const tci_node *n)
{
    return (double)tci_dim_hint(tci_node_count(n)) * tci_dtype_get((tc_dtype)n->dtype)->bytes;
}

/* A graph: nodes, their hash table, and where memory comes from. A context owns one with scopes; a
 * compile makes one in its scratch (scratch != NULL: allocation cannot fail, scopes are unused). */
typedef struct tci_graph {
    tci_scratch *scratch;
    const tc_allocator *alloc;              /* when scratch is NULL */
    tc_promotion promotion;                 /* in which dtypes operands meet that have several */
    tci_node **slots;                       /* by id; NULL where free */
    uint32_t *generations;                  /* by id */
    uint32_t n_slots, cap_slots, free_slot; /* free_slot: head of the free list, UINT32_MAX: none */
    uint32_t *free_next;
    tci_node **buckets;
    uint32_t n_buckets, n_nodes;
    tci_node **scope_heads; /* nodes of each open scope, newest first */
    int n_scopes, cap_scopes;
    void *pools[24];            /* free lists of node memory by size class */
    void *slabs;                /* memory those lists are cut from, newest first */
    char *slab_next, *slab_end; /* uncut part of the newest slab */
    tc_site site;               /* stamped on new nodes: where the public call under way stands, */
    const char *call;           /* and its name, which is never freed; */
    uint32_t region;            /* see tci_node */
    uint64_t n_inputs_made;     /* INPUT and COLLECTIVE nodes so far: their order of creation */
    struct tci_table *facts;    /* tci_graph_rebuild copies items to nodes it makes; NULL: none */
    int64_t bytes;
    tc_status error; /* of the last builder that returned NULL */
    char message[512];
} tci_graph;

/* Source location and region that new nodes get. */
typedef struct tci_stamp {
    tc_site site;
    const char *call;
    uint32_t region;
} tci_stamp;
/* New nodes are stamped as n is; returns the stamp until now, for tci_graph_restamp. */
static inline tci_stamp tci_graph_stamp_as(tci_graph *g, const tci_node *n)
{
    tci_stamp before = {g->site, g->call, g->region};
    g->site = n->site;
    g->call = n->call;
    g->region = n->region;
    return before;
}
static inline void tci_graph_restamp(tci_graph *g, tci_stamp stamp)
{
    g->site = stamp.site;
    g->call = stamp.call;
    g->region = stamp.region;
}

/* n, a node of the user's graph that reads at indices, named after the latest call that makes it:
 * equal calls share a node, and the message of a failed run (run/index_error.c) names a call of the
 * program that was recorded last. */
static inline tci_node *tci_graph_claim(const tci_graph *g, tci_node *n)
{
    if (n && !g->scratch && g->call) {
        n->site = g->site;
        n->call = g->call;
    }
    return n;
}

/* Finds or makes a node. in, shape, attr are copied. NULL: out of memory (g->error set). */
TCI_FN tci_node *tci_graph_node(tci_graph *g, int op, tc_dtype dtype, int rank,
                                const tci_dim *shape, int n_in, tci_node *const *in, int n_attr,
                                const int64_t *attr);
TCI_FN tci_node *tci_graph_literal(tci_graph *g, tc_dtype dtype,
                                   tci_value v); /* folds the five values */
TCI_FN tci_node *tci_graph_const(tci_graph *g, tc_dtype dtype, tci_value v);
TCI_FN void tci_graph_init(tci_graph *g, tci_scratch *scratch, const tc_allocator *alloc);
TCI_FN void tci_graph_deinit(tci_graph *g);
TCI_FN void tci_graph_drop(tci_graph *g,
                           tci_node *n);        /* forget one node (scope end, replaced keep) */
TCI_FN bool tci_graph_open_scope(tci_graph *g); /* false: out of memory. Closing: api/scope.c */
TCI_FN void *tci_graph_resize(tci_graph *g, void *p, size_t old_bytes,
                              size_t new_bytes); /* its memory */
TCI_FN tc_status tci_graph_fail(tci_graph *g, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);
/* The status of a builder that failed although the graph was valid: out of memory, or a mistake
 * of ours. */
TCI_FN tc_status tci_graph_why_again(const tci_graph *g);

/* graph/print.c: text of the nodes a set of roots needs, in a stable form; graph/verify.c. */
TCI_FN void tci_graph_print(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots);
TCI_FN void tci_graph_print_dot(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots);
TCI_FN void tci_graph_print_shape(char *text, size_t room, int rank,
                                  const tci_dim *shape); /* "[3, 4]" */
TCI_FN void tci_graph_verify(tci_scratch *s, tci_node *const *roots,
                             int n_roots); /* longjmps on a breach */

#endif
