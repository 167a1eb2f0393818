/* plan/plan.h - defines the plan of a program: kernels, buffers and the order of launches.
 *
 * plan/fusion_groups.c partitions the rewritten graph into kernels, plan/lower_group.c writes each
 * as kernel IR, plan/memory.c orders steps and places temporaries, plan/horizontal_fusion.c merges
 * small kernels, plan/init_section.c chooses what is computed once. A kernel knows only the slice
 * of a buffer that it reads; the step has the slice's offset, so the steps of an unrolled loop,
 * each of which reads its own slice, share one kernel. Invariants (plan/verify.c): steps are in
 * execution order; an operand is inside its buffer, and a written operand is all of it; a buffer is
 * written (by one or several steps, to disjoint elements) before it is read, and every output is
 * written; temporaries are in the arena, and those with overlapping lifetimes do not overlap;
 * offsets are multiples of 64; a step of the init section reads only values that are constant
 * across runs, and writes temporaries and kept values, which nothing else writes.
 *
 * The kernel of a step may be a merged one (a joint, plan/horizontal_fusion.c) of several
 * independent kernels. Its operands and literals are those of its members in order.
 *
 * Loops (REPEAT nodes, plan/loops.c): the steps of a body are in the list once, at the position of
 * the first iteration. An operand whose memory differs between iterations has a move: the number of
 * bytes that it advances per iteration, or, with `back`, forward and back in turn. An operand with
 * a move is always inside its buffer, and is not all of it. An outer loop comes before those inside
 * it and moves their operands too. The init section has no loops. A loop with little work per
 * iteration is one step instead, whose kernel contains the loop (plan/loop_in_kernel.c). */
#ifndef TCI_PLAN_PLAN_H
#define TCI_PLAN_PLAN_H

#include "../base/hash.h"
#include "../graph/side_table.h"
#include "../kernel/ir.h"
#include "../kernel/machine.h"

typedef enum tci_buffer_kind {
    TCI_BUF_INPUT,  /* index: which program input (leaf of the compiled graph) */
    TCI_BUF_OUTPUT, /* index: which program output */
    TCI_BUF_TEMP,   /* offset: bytes from the arena's start */
    TCI_BUF_KEPT    /* written by the init section, read by runs; offset: in the program memory */
} tci_buffer_kind;
typedef struct tci_buffer {
    uint8_t kind;
    int8_t dtype;
    int32_t index;
    tci_dim n, bytes; /* elements; their bytes */
    int64_t offset;
    int32_t first, last;  /* steps between which it lives (derived) */
    bool once;            /* the init section writes it */
    const tci_node *node; /* whose value it holds; only valid during the compile */
} tci_buffer;

typedef struct tci_step {
    int32_t kernel;                 /* index in kernels: equal kernels are one */
    int32_t *operands;              /* buffer of each operand of the kernel, */
    tci_dim *offsets;               /* and at which byte of it the operand begins */
    int32_t *literals;              /* program literal slot of each literal of the kernel */
    int32_t group;                  /* of plan.fusion; -1: a merged kernel */
    const struct tci_step *members; /* of a merged kernel: the steps that it replaces */
    /* canonical numbers of the nodes that its kernel computes, the one that costs most first */
    int32_t *origins;
    int32_t n_origins;
} tci_step;

/* Inputs that an output may alias exactly (same address, same bytes): every kernel that writes the
 * output reads the input only at the element that it writes, and nothing reads it later. */
typedef struct tci_alias {
    int32_t output, input;
} tci_alias;

typedef struct tci_move {
    int32_t step, operand;
    tci_dim by;
    bool back;
} tci_move;
typedef struct tci_turn {  /* a carry of two rows, whose last value goes to the first */
    int32_t step, operand; /* where the first row is written, before the rounds */
    tci_dim bytes;         /* from row to row */
} tci_turn;
/* While planning: a carry of a span, and the operands of its steps that are in a carry's rows. */
typedef struct tci_span_carry {
    int32_t buffer;
    tci_dim from, to; /* offsets of the row that round 0 reads, and of that it writes */
    tci_dim by;       /* what it reads is so much further on in the next round; */
    bool back;        /* or, of two rows, in odd rounds */
    bool settles;     /* see tci_turn */
    tci_dim bytes;    /* of a row's elements */
} tci_span_carry;
typedef struct tci_carried {
    int32_t step, operand, carry;
    bool next;
} tci_carried;
typedef struct tci_span { /* steps that are repeated */
    int32_t enter;        /* steps [enter, first) set the carries, */
    int32_t first, last;  /* steps [first, last) are done in each round */
    int32_t n_within;     /* of the spans that follow, those within it */
    int32_t group;        /* the loop's in the plan's fusion; -1: within another */
    tci_dim rounds;
    int32_t first_move, n_moves;
    /* If the number of iterations is unknown: the final values of alternating carries are in their
     * first rows. stops: the number among the carries (then all of them, in order) of the one that
     * says whether there is another iteration; -1: it does not stop. */
    int32_t first_turn, n_turns, stops;
    /* of a span within no other; for plan/loop_in_kernel.c */
    tci_span_carry *carries;
    int32_t n_carries;
    tci_carried *carried;
    int32_t n_carried, cap_carried;
} tci_span;

/* An operand of a lowered group, for any plan of the same graph: the program's buffer number
 * `which`; with a node that node's root's, -1: its buffer, else number `which` of its outputs. */
typedef struct tci_reuse_operand {
    const tci_node *node;
    int32_t which;
} tci_reuse_operand;
/* A contraction that several routes of its class compute (plan/contraction_route.h). */
typedef struct tci_plan_contest {
    const char *name;    /* "contract_64x64x512", */
    const char **routes; /* the one that is taken, then the others, the cheapest first */
    int n;
    double cost_ns; /* of the one that is taken, by the model */
} tci_plan_contest;
typedef struct tci_plan_contests {
    tci_plan_contest *items;
    int n, cap;
} tci_plan_contests;

/* The kernel that a group became, and the hash of its text. */
typedef struct tci_plan_made {
    const tci_kernel *kernel;
    tci_hash hash;
    const char *text;
    struct tci_lowered *low; /* NULL: of one step alone, as calls and loops */
    const tci_reuse_operand *operands;
} tci_plan_made;

typedef struct tci_plan {
    tci_kernel **kernels;
    int n_kernels, cap_kernels;
    tci_step *steps;
    int n_steps, cap_steps;
    int n_init; /* this many at the start are the init section: once for a program */
    tci_buffer *buffers;
    int n_buffers, cap_buffers;
    tci_alias *aliases;
    int n_aliases, cap_aliases;
    tci_alias *assigns;
    int n_assigns, cap_assigns; /* outputs that are new values of inputs */
    tci_span *spans;
    int n_spans, cap_spans;
    tci_move *moves;
    int n_moves, cap_moves;
    tci_turn *turns;
    int n_turns, cap_turns;
    struct tci_plan_repeat *repeats;
    int n_repeats, cap_repeats; /* while planning */
    int64_t arena_bytes, kept_bytes;
    int64_t arena_least; /* no arena is smaller: bytes that are needed at once by some step */
    tci_str why;    /* one line a refused fusion: reason (plan/fusion_refusal.h), the two sides */
    tci_str orders; /* one line a sum in parts, or that must not be, being reproducible */
    tci_str routes; /* one line a contraction: how it is computed, and what else fits */
    tci_plan_contests contests;
    tci_str tried; /* kernels that trials leave whole, and what their parts would take */
    tci_str again; /* what is computed again to need less memory at once, a line */
    struct tci_fusion *fusion; /* the groups that its kernels were made of; while compiling */
    int32_t *red_of;         /* while lowering: per root, the RED value of the kernel being made */
    const tci_table *panels; /* while planning: int32_t, the width of the panels that hold a
                              * value */
} tci_plan;

/* Memory that is needed from step `first` to step `last`; last -1: by none. */
typedef struct tci_life {
    int32_t first, last;
    int32_t alone; /* the last step that need not come after all that use it anyway */
    int64_t bytes;
    int64_t offset; /* out: from the arena's start; only where last >= 0 */
} tci_life;
/* Bytes that are needed at once by some step, each life's rounded up to what it takes. */
TCI_FN int64_t tci_plan_least(tci_scratch *s, const tci_life *lives, int n, int n_steps);
/* Places the lives of a run of n_steps steps; returns the bytes of the arena. apart: launches run
 * side by side, so small values keep their memory as long as they are `alone`. Changes `last`.
 * Longjmps. */
TCI_FN int64_t tci_plan_place(tci_scratch *s, tci_life *lives, int n, int n_steps, bool apart);

/* The whole planning pass over a rewritten graph. inputs and literals give the numbering of program
 * inputs and literal slots; roots the outputs in order. Longjmps on failure. */
TCI_FN tci_plan *tci_plan_make(tci_scratch *s, tci_graph *g, tci_node *const *inputs, int n_inputs,
                               tci_node *const *literals, int n_literals, tci_node *const *roots,
                               int n_roots, tci_machine machine);
/* Number of executions of step t: the product of the trip counts of the spans that contain it, up
 * to those that stop by a value. */
TCI_FN int64_t tci_plan_rounds(const tci_plan *p, int t);
TCI_FN void tci_plan_print(tci_str *out, const tci_plan *p);
/* Kernels and the buffers between them, for Graphviz. */
TCI_FN void tci_plan_print_dot(tci_str *out, const tci_plan *p);
TCI_FN void tci_plan_verify(tci_scratch *s, const tci_plan *p);

#endif
