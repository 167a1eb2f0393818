/* kernel/ir.h - defines the kernel IR: what a kernel computes, independent of any target.
 *
 * A kernel runs over `outer` axes (independent, in any order, on any thread; except for EARLIER
 * reductions, see below) and, for each outer point, through its stages in order. A stage iterates
 * over its own inner axes and does one of
 *   MAP     evaluates values and stores them
 *   REDUCE  folds values into accumulators; each result is a scalar of the outer point for later
 *           stages
 *   SCAN    like REDUCE over one axis in order; the running value may be stored at every step
 *   SCATTER evaluates values and stores them at loaded indices, point after point in row-major
 *           order of the inner axes, so that several points may store to one element
 * A softmax is one kernel: outer rows; stages max, sum(exp(x - max)), map. A pointwise kernel has
 * one MAP stage without inner axes. A matmul has outer (m, n) and one REDUCE of an FMA over k.
 *
 * A REDUCE may keep the last axes of its stage: then it has one result for each of their points, a
 * row of the outer point, which later stages (REDUCE or MAP) read at the same axes. Attention is
 * one kernel of such rows: for each query a DOT over d keeps the keys, MAX and SUM fold over the
 * keys, a MAX of one element each keeps the weights (also NaN and the sign of 0), a DOT over the
 * keys keeps the values' axis, and a MAP stores that.
 *
 * Values form one hash-consed scalar DAG (tci_kinst). The position where a value is evaluated
 * follows from its dependencies: an instruction that depends on no inner axis is evaluated once per
 * outer point, at its first use; others in each stage that uses them. Guards make loads total.
 *
 * Index expressions (tci_kx) are quasi-affine over axes, hash-consed and kept simplified; each has
 * its range [lo, hi] over the domain.
 *
 * The order of a reduction is part of the kernel, the same for every executor: its numeric class
 * (tci_kred.order), which plan/reduction_lanes.c and reduction_order.c choose and no schedule
 * changes.
 *   CHAIN     one accumulator; elements in row-major order of the inner axes. A DOT is one chain
 *             of FMAs.
 *   LANES(n)  n virtual lanes on the LAST inner axis of the stage: element j of that axis goes to
 *             lane j % n, and lanes continue over the other inner axes (in order); at the end lane
 *             i is combined with lane i + n / 2, then i + n / 4, ... 2, 1: acc[i] =
 *             combine(acc[i], acc[i + h]). LANES(n/g): first, among each g neighbours, lane i with
 *             lane i + g / 2, .. 1, and then only the first ones of these: i + n / 2, .. i + g.
 *             Lanes start at the identity; an element that does not exist changes nothing.
 *   BLOCK_SCAN(n)  a SCAN over one axis in blocks of n elements. In a block, for h = 1, 2, 4 .. n
 *             / 2, each element i with i & h is combined with the last of the h elements below it:
 *             s[i] = combine(s[(i | (h - 1)) ^ h], s[i]). Then all are combined with the last
 *             element of the block before, in the first block with the identity. Combining with
 *             the identity at any other position changes no bit either.
 *   SPLIT(n)  a DOT in f32: product number j, counted in row-major order of the inner axes,
 *             belongs to part j / n. Each part is a chain; their sums are added in order, starting
 *             from the first. A DOT of up to n products is its chain.
 *   A stage that keeps axes has a CHAIN or SPLIT over its other axes for each of their points;
 *   vectors run along the last kept axis.
 *   PAIRS     in addition to one of these two orders: a DOT of bf16 operands, for CPUs that take
 *             two products at a time (VDPBF16PS). It adds one after the other, in the same order
 *             and with the same roundings, except for numbers below 2^-126: such a factor, or sum,
 *             is flushed to zero. Without such numbers results are bit-identical to that order;
 *             otherwise executors agree within
 *                 |difference| <= sum over those k of |a b| + 2^-126 (K + 2)
 *             and its propagation through the roundings.
 *   MATRIX    a DOT of bf16 or f16 pairs: exact products summed in f32 in the order of a matrix
 *             unit, which is fixed for a shape. The interpreter computes the chain, so executors
 *             agree only within
 *                 |difference| <= (2 ceil(K / 16) + 32) 2^-23 sum over k of |a b|
 *             for K products: a unit may truncate the smaller of two addends. mma.sync
 *             (kernel/match_mma_sync.h) takes fewer products at a time: its bound is
 *                 (3 ceil(K / 4) + 32) 2^-23 sum over k of |a b|, here and in TF32.
 *             Or a DOT of f64, whose unit adds products as fused multiply-adds, in an order of its
 *             own: within 2 K 2^-53 sum over k of |a b|. Or of 8-bit integers in i32: exact.
 *   TF32      a DOT of f32 pairs under TC_MATH_FAST: each operand is rounded to 10 mantissa
 *             bits after the leading one (to nearest, ties to even), the products summed as in
 *             MATRIX. The interpreter computes the chain of the unrounded operands, so executors
 *             agree only within
 *                 |difference| <= (2^-10 + (2 ceil(K / 8) + 32) 2^-23) sum over k of |a b|
 *   STEPS     for a row of scores x whose products are MATRIX: SUM of exp(x - MAX of x), and the
 *             DOT of the weights exp(x - MAX) / SUM, rounded to bf16 or f16, with such values.
 *             Keys are processed in steps; partial sums are rescaled whenever a larger score
 *             occurs, the exponentials rather than the weights are rounded, and the division comes
 *             last. A kernel without the DOT has STEPS(n), n the columns of the values that
 *             another one multiplies the weights with, as the steps depend on it. The
 *             interpreter computes LANES and the chain, so executors agree only within
 *                 |difference| <= (2 u + (K / 4 + 64 + 2 max |x|) 2^-23) sum over k of |w b|
 *             for weights w and K keys, u = 2^-9 for bf16 and 2^-12 for f16; f16 weights below
 *             2^-14 add 2^-25 max |b| each. A row without a finite score is NaN. Also for a kernel
 *             that loads a row's m and l (kernel/match_attention.h): the DOT over rows or
 *             keys of w = exp(x - m) / l, or of c, a value made of w and another MATRIX product,
 *             rounded to bf16 or f16, with such values. exp is the machine's, w is exp times 1 /
 *             l, and a weight or c may round to the neighbouring value: within the same bound,
 *             with |c b| and the error of the product propagated through c.
 * A sum of exp(v - m), m the maximum v of the row, may be made in the pass that finds m: as the
 * second part of an ONLINE (ops/table.h), in one of the orders above. That is a class of its own:
 * it rounds where the sum is rescaled, as m grows.
 *
 * An EARLIER REDUCE makes a total of each outer point. The last outer axes, merged into one, count
 * the parts of a row, and its result is the prefix total of the preceding parts. Parts are in
 * groups (tci_kernel_group): m, over the earlier parts of the same group, is a reduction by the
 * class of the totals; the total of a group is combine(m, total) of its last part; g, over the
 * preceding groups, is a reduction by the class of theirs; the result is combine(g, m), or m if
 * there is one group. So a long scan is one kernel: for each part its total, the EARLIER result,
 * and a SCAN that starts from it. Outer points are then not independent: whoever runs one has
 * started those before it, and waits for their totals. Only GPUs that dispatch blocks in index
 * order and whose steps have memory of their own allow it (tci_machine.in_order_blocks).
 *
 * The stores of a SCATTER to one element are combined in the order of the points: a chain that
 * starts with the value that an earlier stage stored there, and rounds to the operand's dtype at
 * each step. Outer points share no element, so no other order matters. combine(acc, v) is the
 * reduction's row of TCI_COMBINES, with acc the earlier operand.
 *
 * A kernel may also be a joint: several independent kernels, its members, merged into one launch
 * (plan/horizontal_fusion.c). It has their operands and literals, in the order of the members, and
 * nothing else of its own; all of the above holds for each member.
 *
 * Invariants (kernel/verify.c): args[i] < own index; guards' and offsets' axes are the kernel's;
 * divisors of DIV and MOD are above 0; a load without guard, and a store, stays inside its operand
 * for the whole domain; no two points of a store have one offset, nor two outer points of a
 * SCATTER for any indices, unless it promises so; a store that combines or has a guard belongs to
 * a SCATTER, in a VEC_OUTER kernel, and an earlier stage has stored every element that it may
 * touch; stage axes are inner axes, and contain the ends of a range; a RED value is used only in
 * stages after its own (SCAN: also in its own) or by outer-level values, one that keeps axes only
 * in stages that iterate over these; in a VEC_INNER kernel each reduction that keeps no axes has
 * class LANES, or BLOCK_SCAN in a SCAN, all with one number, or is the SUM of STEPS, in others none
 * has and none keeps axes; a reduction that keeps axes, and a SCAN, has one part; no other stage
 * uses the value of a BLOCK_SCAN; at most one reduction of a kernel is EARLIER, over a row of one
 * axis, with one part, LANES and at least one outer axis; SPLIT, PAIRS, MATRIX and TF32 are only
 * for a DOT in f32, MATRIX also for one in f64 or i32. */
#ifndef TCI_KERNEL_IR_H
#define TCI_KERNEL_IR_H

#include "../base/dim.h"
#include "../ops/combine.h"
#include "../ops/custom_op.h"
#include "../ops/op_info.h"
#include "../ops/prim.h"

enum {
    TCI_VLANES = 64, /* virtual lanes on a CPU, and the fewest anywhere */
    TCI_VLANES_MAX = 2048,
    TCI_KERNEL_GROUP = 16,     /* parts of a group, at least */
    TCI_KERNEL_INDEX_DEPTH = 8 /* of sums and conversions of an index that is compared, at most */
};

/* ---- index expressions ----
 * Numbers in here (coefficients, ranges, guards, sizes) may be symbolic (base/dim.h); what is
 * decided about them holds where no axis of the kernel is empty, as nothing is evaluated then. */
typedef enum tci_kx_op {
    TCI_KX_CONST, /* c */
    TCI_KX_AXIS,  /* axis number c */
    TCI_KX_ADD,   /* a + b */
    TCI_KX_MUL,   /* a * c */
    TCI_KX_DIV,   /* floor(a / c), c > 0 */
    TCI_KX_MOD,   /* a - c * floor(a / c), c > 0 */
    TCI_KX_VALUE, /* the integer value of instruction c, already inside [lo, hi] */
    TCI_KX_BOUND  /* a, known to be in [lo, hi] where a guard holds: while lowering only */
} tci_kx_op;
typedef struct tci_kx {
    uint8_t op;
    int32_t a, b; /* indices of kx nodes; -1 unused */
    tci_dim c;
    tci_dim lo, hi; /* range, inclusive */
    uint64_t axes;  /* derived, as tci_kinst.axes; so a traversal for it is never needed */
    int32_t stage;  /* derived: latest stage whose reduction it depends on, -1 none */
} tci_kx;

/* Of an AXIS or a VALUE: which. */
static inline int tci_kx_number(const tci_kx *x)
{
    return (int)tci_dim_known(x->c);
}

/* ---- instructions ---- */
typedef enum tci_kop {
    TCI_K_CONST, /* value, in the compute dtype */
    TCI_K_LIT,   /* literal slot imm: read from the call's literal words, converted to dtype */
    TCI_K_LOAD,  /* operand imm at offset x (elements); guard set: 0 / fill where it fails */
    TCI_K_INDEX, /* the value of index expression x, as i64 or, modulo 2^32, u32 */
    TCI_K_GUARD, /* bool: guard set holds */
    TCI_K_PRIM,  /* prim over args */
    TCI_K_RED,   /* result of reduction imm (SCAN: the running value) */
    /* args[0] an index, lo..hi allowed (x = size): passes it on clamped, counts from the end when
     * negative, and sets the call's fault word to imm + 1 when outside */
    TCI_K_FAULT
} tci_kop;
typedef struct tci_kinst {
    uint8_t op;   /* tci_kop */
    uint8_t prim; /* PRIM */
    int8_t dtype; /* compute dtype of the value (tc_dtype; never f16 or bf16) */
    uint8_t n_args;
    int32_t args[3];
    int32_t x;     /* LOAD, INDEX: kx; FAULT: unused */
    int32_t guard; /* LOAD, GUARD: first entry in guards; n_guards entries; -1 = none */
    int32_t n_guards;
    tci_dim imm;     /* see tci_kop; FAULT: the size n of the indexed axis */
    tci_value value; /* CONST; LOAD: fill where a guard fails */
    uint64_t axes;   /* derived: bit i set = depends on axis i (axes >= 63 share bit 63) */
    int32_t stage;   /* derived: latest stage whose reduction it depends on, -1 none */
} tci_kinst;

/* Of a LIT, LOAD or RED: which; of a PRIM: which helper. */
static inline int tci_kinst_number(const tci_kinst *i)
{
    return (int)tci_dim_known(i->imm);
}
/* One guard: lo <= x <= hi (inclusive). A set is a conjunction. */
typedef struct tci_kguard {
    int32_t x;
    tci_dim lo, hi;
} tci_kguard;

/* ---- reductions, stores, stages ---- */
/* The numeric class of a reduction: its order, which every executor keeps. */
typedef enum tci_korder {
    TCI_ORDER_CHAIN,
    TCI_ORDER_LANES,      /* order_n virtual lanes: a power of two, 64 .. TCI_VLANES_MAX */
    TCI_ORDER_BLOCK_SCAN, /* order_n elements a block: as many */
    TCI_ORDER_SPLIT,      /* order_n products a part, at least 1 */
    TCI_ORDER_MATRIX,
    TCI_ORDER_STEPS,
    TCI_ORDER_TF32
} tci_korder;
typedef struct tci_kred {
    uint8_t op;   /* tci_red_op: what is combined and how (ops/combine.h) */
    uint8_t part; /* which part of the accumulator is the result */
    int8_t dtype; /* in which it accumulates; that of each part follows */
    int32_t stage;
    int32_t in[TCI_PARTS]; /* the values that an element is, tci_red_takes of them; then -1 */
    int32_t inst;          /* the RED instruction that stands for the result */
    uint8_t order;         /* tci_korder */
    int32_t order_n;       /* its number, 0 where it has none */
    /* LANES: this many neighbours are joined first, a power of two; 0: none. All of a kernel alike
     */
    uint8_t near;
    /* products that a lane may take at once, 0: one. 2: a DOT of bf16 in f32 (PAIRS, of a CHAIN or
     * SPLIT), or of integers of 16 bits in i32; 4: of bytes, in i32 (MATRIX: of any signs) */
    uint8_t points;
    /* 0: the result is that of its outer point. Else what the results of the points before it come
     * to, of those that differ only in this many of the last outer axes (see above) */
    uint8_t earlier;
} tci_kred;
typedef struct tci_kstore {
    int32_t stage;
    int32_t operand; /* output operand */
    int32_t x;       /* offset in elements: injective over outer and stage axes */
    int32_t value;   /* stored after narrowing to the operand's dtype */
    uint8_t mode;    /* tci_mode: replaces what is there, or combines with it */
    int32_t guard;   /* a bool: nothing is stored where it does not hold; -1: always */
    bool apart;      /* a SCATTER's: no two points have one offset, which who made it promises */
} tci_kstore;
/* The reduction whose combine step a mode is; -1: SET. */
TCI_FN int tci_kstore_combine(int mode);
typedef enum tci_kstage_kind {
    TCI_STAGE_MAP,
    TCI_STAGE_REDUCE,
    TCI_STAGE_SCAN,
    TCI_STAGE_SCATTER
} tci_kstage_kind;
typedef struct tci_kstage {
    uint8_t kind;
    int32_t n_axes;
    int32_t *axes;  /* inner axes in loop order, the last one fastest */
    int32_t n_kept; /* REDUCE: this many at the end are kept by its reductions */
    /* SCATTER: index expressions; of its one axis only the points from <= i < to; -1: all */
    int32_t from, to;
} tci_kstage;

/* ---- operands and the kernel ---- */
typedef struct tci_koperand {
    int8_t dtype;    /* storage dtype */
    bool is_output;  /* written by this kernel (never also read through another operand) */
    bool is_updated; /* a store of a SCATTER reads what is there as well */
    tci_dim n;       /* elements that may be touched: offsets are in [0, n) */
    /* Elements of a panel, 0: it is in none. A load's axis a is there in panels one after the
     * other, at (a / panel) * step + a % panel, or of pairs a % panel * 2, of fours * 4; the last
     * one is whole (plan/prepack.c). */
    int32_t panel;
} tci_koperand;
typedef struct tci_kaxis {
    tci_dim size;
    bool inner;
} tci_kaxis;
typedef enum tci_kvec { TCI_VEC_OUTER, TCI_VEC_INNER } tci_kvec;

/* ---- in-kernel loops ---- The kernel of a whole loop (plan/loop_in_kernel.c). A task is an
 * iteration, and one thread (or thread block) runs the tasks in order; in each iteration the
 * members run one after the other, except the first n_enter, which set the carries before iteration
 * 0. Cells are local scalars of the function: temporaries of an iteration, and carries small enough
 * for registers. */
typedef enum tci_kstep {
    TCI_STEP_WALK, /* an operand is `by` bytes further on after each round, */
    TCI_STEP_TURN, /* or so far in odd rounds alone, */
    TCI_STEP_ANEW  /* in the odd rounds of a call */
} tci_kstep;
typedef struct tci_kplace { /* where an operand of a member is */
    int32_t base;           /* an operand of the loop; ~c: local scalar (cell) c */
    uint8_t step;           /* tci_kstep */
    tci_dim offset;         /* bytes from the base in round 0 */
    tci_dim by;
} tci_kplace;
typedef struct tci_kcell {
    int8_t dtype;
    int64_t n;
} tci_kcell;
/* A carry. With cells (of equal size) the members read `cell` and write `next`; it is loaded from
 * row `from` when a call starts. WALK: each iteration also stores its result in row `to`; else the
 * call stores it when it ends, where a next call loads it. Without cells (-1) the members use the
 * rows in place, and a carry of ANEW is copied to row `from` after an odd number of iterations. */
typedef struct tci_kcarry {
    tci_kplace from, to;
    int32_t cell, next;
    tci_dim bytes; /* of a row's elements */
} tci_kcarry;
typedef struct tci_kloop {
    tci_dim rounds;
    int32_t n_enter;
    int32_t stops; /* the carry, a bool in a cell, that must be true for another iteration; -1:
                    * none */
    tci_kplace *places;
    int n_places; /* of the operands of all members, in order */
    tci_kcell *cells;
    int n_cells, cap_cells;
    tci_kcarry *carries;
    int n_carries;
} tci_kloop;

typedef struct tci_kernel {
    tci_scratch *s;
    tci_kaxis *axes;
    int n_axes, cap_axes; /* outer axes first, in loop order; then inner axes */
    int n_outer;
    /* tci_kvec: the LAST outer axis, or each stage's last inner axis */
    uint8_t vector;
    tci_kx *kx;
    int n_kx, cap_kx;
    tci_kinst *insts;
    int n_insts, cap_insts;
    tci_kguard *guards;
    int n_guards, cap_guards;
    tci_kred *reds;
    int n_reds, cap_reds;
    tci_kstore *stores;
    int n_stores, cap_stores;
    tci_kstage *stages;
    int n_stages, cap_stages;
    tci_koperand *operands;
    int n_operands, cap_operands;
    /* literal slots are 0 .. n_literals-1 of THIS kernel */
    int n_literals;
    /* A user function in place of axes and stages: it takes the operands in order,
     * and the host calls it. NULL: none */
    const tci_custom_call *call;
    /* of a merged kernel, or an in-kernel loop; equal ones are one pointer */
    struct tci_kernel **members;
    int n_members;
    const tci_kloop *loop; /* of an in-kernel loop; NULL: it is none */
    bool faults;           /* holds a FAULT instruction, or calls an assertion */
    bool is_repeat;        /* none: stands for a body, within plan/ */
    /* before orders are chosen, of a kernel of scores that sums no values: columns of those that
     * another kernel multiplies the weights with; 0: there is none */
    int32_t value_columns;
    int64_t flops, bytes;         /* of one whole run, for cost and explain */
    tci_dim all_flops, all_bytes; /* the same where sizes are symbolic: not of hints */
    char name[64];                /* tc_k_<ops>: C identifier without hash */
    int32_t *kx_hash, *inst_hash;
    int n_kx_hash, n_inst_hash; /* hash-consing tables */
} tci_kernel;

/* The size of an axis that is known to be a number. */
static inline int64_t tci_kernel_known(const tci_kernel *k, int axis)
{
    return tci_dim_known(k->axes[axis].size);
}

/* kernel/ir.c: hash-consing constructors (simplify on the way). */
TCI_FN tci_kernel *tci_kernel_make(tci_scratch *s);
TCI_FN int tci_kernel_axis(tci_kernel *k, tci_dim size, bool inner);
TCI_FN int tci_kx_const(tci_kernel *k, tci_dim c);
TCI_FN int tci_kx_axis(tci_kernel *k, int axis);
TCI_FN int tci_kx_add(tci_kernel *k, int a, int b);
TCI_FN int tci_kx_mul(tci_kernel *k, int a, tci_dim c);
TCI_FN int tci_kx_div(tci_kernel *k, int a, tci_dim c);
TCI_FN int tci_kx_mod(tci_kernel *k, int a, tci_dim c);
TCI_FN int tci_kx_value(tci_kernel *k, int inst, tci_dim lo, tci_dim hi);
/* x by another name, where it is known to be in [lo, hi]; x itself where it always does. */
TCI_FN int tci_kx_bound(tci_kernel *k, int x, tci_dim lo, tci_dim hi);
/* If x = base + sum coef[i] * axis i over the kernel's axes: fills coef[n_axes], *base and says
 * true. */
TCI_FN bool tci_kx_affine(const tci_kernel *k, int x, tci_dim *coef, tci_dim *base);
/* The same, where all of it is known. */
TCI_FN bool tci_kx_affine_known(const tci_kernel *k, int x, int64_t *coef, int64_t *base);
/* axes it depends on, as tci_kinst.axes */
TCI_FN uint64_t tci_kx_axes(const tci_kernel *k, int x);
/* finds or adds; derives axes and stage */
TCI_FN int tci_kernel_inst(tci_kernel *k, tci_kinst inst);
TCI_FN int tci_kernel_prim(tci_kernel *k, tci_prim p, tc_dtype dtype, int n, int a, int b, int c);
TCI_FN int tci_kernel_const(tci_kernel *k, tc_dtype dtype, tci_value v);
/* EQ, LT or LE; of two indices whose difference is a diagonal of axes a GUARD, so that a mask of
 * positions is known for a whole range of them, and has no lanes as wide as an i64. */
TCI_FN int tci_kernel_compare(tci_kernel *k, tci_prim p, int a, int b);
TCI_FN int tci_kernel_operand(tci_kernel *k, tc_dtype dtype, bool is_output, tci_dim n);
/* Where a stage does nothing but copy an operand, element by element and as it is, over which a
 * SCATTER then stores: the one it reads and the one it writes. Where both are at one place, nothing
 * has to be done. */
TCI_FN bool tci_kernel_copies(const tci_kernel *k, int stage, int *from, int *to);
/* Appends a store; its operand is updated if it reads what is there. */
TCI_FN void tci_kernel_store(tci_kernel *k, tci_kstore store);
/* The first member of a merged kernel or loop that is the same kernel as member i. */
TCI_FN int tci_kernel_first_same(const tci_kernel *k, int i);
/* The reduction that is of what is EARLIER; NULL: outer points need nothing of each other. And the
 * parts of each row of its. */
TCI_FN const tci_kred *tci_kernel_earlier(const tci_kernel *k);
TCI_FN int64_t tci_kernel_parts(const tci_kernel *k);
/* Parts of a group of them, a power of two: one group has all, or each part needs few totals. */
TCI_FN int64_t tci_kernel_group(const tci_kernel *k);
/* Whether a stage keeps axes. */
TCI_FN bool tci_kernel_keeps(const tci_kernel *k);

/* The n of the kernel's LANES(n) and BLOCK_SCAN(n); of one without, the least. */
TCI_FN int tci_kernel_lanes(const tci_kernel *k);
/* The g of LANES(n/g), 0 where none are joined first. */
TCI_FN int tci_kernel_near(const tci_kernel *k);
/* The class in words: "LANES(64)", "ONLINE LANES(64)". */
TCI_FN void tci_kernel_print_order(tci_str *out, const tci_kred *red);

/* kernel/print.c (the canonical text: equal text = equal kernel), kernel/verify.c. */
TCI_FN void tci_kernel_print(tci_str *out, const tci_kernel *k);
TCI_FN void tci_kernel_verify(tci_scratch *s, const tci_kernel *k);
/* Checks in every compile that every size and index is a number or an expression. */
TCI_FN void tci_kernel_need_dims(tci_scratch *s, const tci_kernel *k);

/* ---- the executable form, shared by every backend ----
 * A built kernel is called for a range of tasks: task t in [0, n_tasks) covers outer points
 * [t * grain, (t + 1) * grain) of the flattened outer domain as the schedule says; every task is
 * independent, but for those of an in-kernel loop, which are done in order. bufs[i] is operand i.
 * lits[i] is literal slot i as tci_value in the literal's dtype class (float kinds: double bits;
 * integers: int64). fault: where FAULT writes imm + 1; NULL when
 * !faults. */
typedef void (*tci_kernel_fn)(void *const *bufs, const int64_t *lits, int64_t *fault,
                              int64_t task_begin, int64_t task_end);

#endif
