/* interp/linear_ir.h - defines the linear IR of the interpreter: a kernel as sections (code per
 * call, per outer block or per loop level) of straight-line vector instructions (steps).
 * interp/lower_to_linear.h makes it, interp/execute.c runs it with the loops of
 * interp/vector_ops.c. Private to interp/.
 *
 * A kernel becomes sections of steps. A section runs once per call (constants), once per outer
 * block (before a stage), or once per iteration of a stage's axis nest at some depth. A step
 * computes one value for the lanes of the current block from values computed before it.
 *
 * Lanes run along the section's vector axis: the innermost outer axis in iteration order
 * (TCI_VEC_OUTER), or in the innermost sections of TCI_VEC_INNER kernels the stage's last axis. A
 * value that does not vary along it is uniform: one 64-byte group of equal elements. A varying
 * value is an array of one block. bool values are lane masks, 0 or all ones, as wide as the values
 * they were compared from.
 *
 * Invariants (interp/verify_linear_ir.c): a step reads only values of its own or enclosing
 * sections; values used outside their own section have memory of their own, others share it by
 * liveness; accesses without a guard, at a linear address, are inside their operand. */
#ifndef TCI_INTERP_LINEAR_IR_H
#define TCI_INTERP_LINEAR_IR_H

#include "../ops/math.h"
#include "interp.h"

enum {
    TCI_INTERP_GROUP = 64, /* bytes of a group: arrays are padded to it */
    TCI_INTERP_BLOCK = 512 /* most lanes of a block; a multiple of TCI_VLANES */
};

/* ---- block loops ---- */

/* vary[i]: 1 when operand i has an element per lane, 0 when one group stands for all. count: groups
 * or elements, as the row says. out may be the same array as an operand of equal element size. */
typedef void (*tci_interp_loop)(void *out, const void *const *in, const uint8_t *vary,
                                int64_t count);

/* Prims of the interpreter alone, numbered after the BASE and MATH ones. */
enum {
    /* select(a > b or a is NaN, a, b): MAX reductions, a the accumulator */
    TCI_IP_MAXIMUM = TCI_P_COUNT,
    TCI_IP_MINIMUM,
    TCI_IP_MULADD,   /* integers: a * b + c, wrapping */
    TCI_IP_FROM_F16, /* u16 bits -> f32 */
    TCI_IP_TO_F16    /* f32 -> u16 bits */
};

typedef struct tci_interp_loop_row {
    uint8_t prim;
    int8_t dtype, to;           /* to: CAST only, else equal to dtype */
    bool group;                 /* counts groups; operands and result have one element size */
    tci_interp_loop base, best; /* best: AVX2 + FMA, or base again */
} tci_interp_loop_row;

/* The row of prim over operands of dtype t (CAST: to `to`), or NULL: evaluate element by
 * element. */
TCI_FN const tci_interp_loop_row *tci_interp_loop_find(int prim, tc_dtype t, tc_dtype to);
/* All rows; their number in n. */
TCI_FN const tci_interp_loop_row *tci_interp_loop_table(int *n);
TCI_FN bool tci_interp_has_avx2(void);

/* One elementwise operation: its loop, or what to evaluate element by element where there is
 * none. */
typedef struct tci_interp_op {
    tci_interp_loop loop; /* NULL: tci_prim_eval */
    uint8_t prim;
    int8_t dtype, to;    /* dtype of the operands, dtype of the result */
    uint8_t n_in, bytes; /* operands; element size of the result */
    uint8_t in_bytes[3];
    bool group;
    bool mask; /* the result is a lane mask */
} tci_interp_op;

/* ---- addresses: base + sum of coef * axis + sum of coef * atom ---- */

typedef struct tci_interp_term {
    int32_t axis;
    int64_t coef;
} tci_interp_term;
typedef struct tci_interp_atom {
    uint8_t op;    /* tci_kx_op: DIV, MOD or VALUE */
    int32_t value; /* VALUE: an i64 value */
    int64_t coef, c;
    struct tci_interp_addr *arg; /* DIV, MOD */
} tci_interp_atom;
typedef struct tci_interp_addr {
    int64_t base;
    int64_t stride; /* per lane, when linear */
    bool linear;    /* no atom varies along the vector axis */
    int n_terms, n_atoms;
    tci_interp_term *terms;
    tci_interp_atom *atoms;
} tci_interp_addr;
typedef struct tci_interp_guard {
    const tci_interp_addr *x;
    int64_t lo, hi;
    int32_t block; /* value that holds x for each lane; -1: x is linear */
} tci_interp_guard;

/* A packed operand of a load, gathered once for all outer points of a chunk of lanes: chunk lanes
 * for each point of its stage's axes. Points are numbered by `at`, in elements. */
typedef struct tci_interp_panel {
    int32_t stage;
    int64_t points, offset; /* in the workspace */
    int64_t run, step; /* points in a row along which the operand moves by this many elements */
    tci_interp_addr at;
} tci_interp_panel;

/* ---- steps ---- */

typedef enum tci_interp_kind {
    TCI_STEP_CONST,  /* out = bits */
    TCI_STEP_LIT,    /* literal slot ref */
    TCI_STEP_OP,     /* op over in */
    TCI_STEP_LANE,   /* helper ref for the lanes that the last operand marks */
    TCI_STEP_INDEX,  /* x for each lane (x is linear), i64 */
    TCI_STEP_DIVIDE, /* floor(x / c), or with flag x mod c, for each lane; x is linear */
    TCI_STEP_FLOOR,  /* the same over in[0] */
    TCI_STEP_GUARD,  /* mask: the guards hold */
    /* elements of operand ref at x, or at in[0] when x is not linear; bits where guards fail */
    TCI_STEP_LOAD,
    TCI_STEP_FAULT, /* in[0] checked against size c */
    TCI_STEP_FOLD,  /* one block into reduction ref; at x of its row, if it keeps one */
    TCI_STEP_ROW,   /* what reduction ref kept, at x of its row */
    TCI_STEP_STORE  /* in[0] to operand ref at x, or at in[1] when x is not linear */
} tci_interp_kind;

typedef struct tci_interp_step {
    uint8_t kind;
    uint8_t bytes; /* element size of out (STORE: of in[0]) */
    bool varies;   /* of out (STORE, FOLD: of the section) */
    bool flag;     /* DIVIDE, FLOOR: the remainder; LOAD: may point into the operand */
    uint8_t vary[TCI_PARTS];
    int32_t out, in[TCI_PARTS]; /* values; -1 none */
    int32_t ref;
    int32_t n_guards;
    int64_t c;
    uint64_t bits;
    tci_interp_op op;
    const tci_interp_addr *x;
    const tci_interp_guard *guards;
    const tci_interp_panel *panel; /* LOAD: that it reads in place of the operand, or NULL */
} tci_interp_step;

typedef struct tci_interp_section {
    tci_interp_step *steps;
    int n, cap;
    int32_t vec; /* vector axis, -1: one lane */
} tci_interp_section;

typedef struct tci_interp_value {
    uint8_t bytes;
    bool varies;
    /* memory of its own: used outside its section, or written more than once */
    bool own;
    bool stored;                  /* read by a STORE */
    int32_t section, first, last; /* where it lives, while preparing */
    int32_t lanes;                /* at least this many elements, whatever the block */
    int64_t offset;               /* in the workspace */
} tci_interp_value;

/* One reduction. The parts of its accumulator start at their identities in each outer block; result
 * holds the value after the stage (for one lane per outer point the part of the accumulator
 * itself, and so for a row that is kept; the last axis of a row takes whole blocks of TCI_VLANES,
 * so that a group written past its end is its own).
 * To join two tuples is one operation where its row is one (`single`). Else it is a section of its
 * own over as many lanes as are joined: its steps read `left`, `right` and constants, and leave the
 * parts in `joined`; where it runs, `left` and `right` are made to stand for the two tuples. */
typedef struct tci_interp_red {
    uint8_t n_parts, n_takes, part; /* part: the one that is the result */
    uint8_t bytes[TCI_PARTS];
    bool inner;   /* virtual lanes, joined at the end of the stage */
    int32_t axis; /* inner: along which they run */
    int32_t row;  /* elements of the row it keeps, 0: it keeps none */
    int32_t stage;
    /* elements of a block (class BLOCK_SCAN), 0: none. Then `result` has the lanes of the section's
     * block, and `acc` groups of one element each: first the last result so far, then for
     * h = TCI_VLANES, 2 TCI_VLANES ... what the last of h elements has taken in, for those above */
    int32_t scan;
    /* EARLIER: the outer axes from parts_axis on count the parts of a row, which are in groups, and
     * `totals` has the totals so far of both, and space for one value; -1: it is not */
    int32_t parts_axis, totals;
    int64_t parts, group;
    int32_t split;     /* products of a part (class SPLIT), 0: one chain */
    int32_t total;     /* value: SPLIT: what the parts before sum up to, -1 none */
    tci_interp_op add; /* SPLIT: total, accumulator -> total */
    uint64_t identity[TCI_PARTS];
    int32_t acc[TCI_PARTS]; /* values */
    int32_t result;
    bool single;
    tci_interp_op combine;
    uint8_t source[TCI_PARTS]; /* of combine's operands: 0 accumulator, i + 1 what is taken in */
    tci_interp_section join;
    int32_t left[TCI_PARTS], right[TCI_PARTS], joined[TCI_PARTS];
} tci_interp_red;

/* acc = x * y + acc for n points, whose factors are at x[i] and y[i], groups of lanes. */
typedef void (*tci_interp_strip_fn)(char *acc, int64_t groups, const char *const *x,
                                    const char *const *y, int n);
enum { TCI_STRIP_AXES = 8 };

/* Products of a stage that run many points at a time (interp/contraction_strip.c). Positions are
 * in bytes. */
typedef struct tci_interp_strip {
    int32_t red, value[2];          /* what is summed; the factors */
    const tci_interp_step *load[2]; /* that reads a factor; NULL: it is the same at all points */
    int bytes;                      /* of an element */
    int n_axes;
    int64_t points, sizes[TCI_STRIP_AXES], step[2][TCI_STRIP_AXES];
    int64_t lane_step[2];           /* from lane to lane; 0: one element for all */
    bool padded[2];                 /* whole groups may be read */
    int64_t row_bytes, rows_offset; /* gathered lanes of a point; in the workspace */
    tci_interp_strip_fn kernel[2];  /* [1]: both factors vary */
} tci_interp_strip;

typedef struct tci_interp_stage {
    uint8_t kind;
    int n_axes, n_kept;
    int32_t from_operand, to_operand; /* it copies one to the other; -1: it does not */
    int32_t *axes;
    /* of its one axis only the points in [from, to), which are those of the block; NULL: all */
    const tci_interp_addr *from, *to;
    const tci_interp_strip *strip; /* runs in place of its sections but the first; or NULL */
    int n_reds;
    int32_t *reds;
    tci_interp_section *sections; /* n_axes + 1: run once; per first axis; ... ; per last axis */
} tci_interp_stage;

typedef struct tci_interp_member {
    struct tci_interp *interp; /* the first that has it owns it */
    int32_t first_same, operand, literal;
    int64_t first_task;
    int64_t tasks; /* of an in-kernel loop's: all its own */
} tci_interp_member;

/* Of an in-kernel loop (interp/loop_in_kernel.c): all its numbers are known. In the workspace: cell
 * i at cell_at[i], the operands of a member, and the members' workspace. */
typedef struct tci_interp_rounds {
    tci_kloop of;
    int64_t *cell_at;
    int64_t slots_at, members_at;
} tci_interp_rounds;

struct tci_interp {
    tci_scratch s; /* owns all of it */
    /* of a merged kernel or an in-kernel loop, which only has `loop` in addition; and an end */
    tci_interp_member *members;
    int n_members;
    const tci_interp_rounds *loop; /* NULL: it is none */
    bool inner;                    /* TCI_VEC_INNER */
    int vlanes;                    /* virtual lanes of its reductions, */
    int near;                      /* this many neighbouring ones are joined first; 0: none */
    int n_outer, n_axes, n_stages, n_values, n_reds, n_operands;
    int64_t *sizes; /* of the axes */
    int32_t *walk;  /* n_outer: the outer axes, slowest first */
    int64_t points, grain;
    int block;     /* lanes that there is memory for */
    int most;      /* of a block */
    int64_t chunk; /* elements of the innermost axis in iteration order that are processed for all
                    * other axes before the next ones */
    bool has_panels;
    int64_t *operand_n; /* elements of each operand */
    tci_interp_value *values;
    tci_interp_red *reds;
    tci_interp_section constants;
    tci_interp_section *before; /* n_stages: at the outer level, before each stage */
    tci_interp_stage *stages;
    /* workspace: pointers of the values, positions on the axes, lane flags, spare lanes, products
     * left of parts, values, panels */
    int64_t axes_offset, flags_offset, spare_offset, left_offset, workspace_bytes;
};

/* As tci_interp_run. */
typedef void (*tci_interp_run_fn)(const tci_interp *p, void *workspace, void *const *bufs,
                                  const int64_t *lits, int64_t *fault, int64_t task_begin,
                                  int64_t task_end);
/* interp/contraction_strip.c: the kernel of f32 or f64; both: each factor varies; best: with AVX2
 * and FMA, where there is one. */
TCI_FN tci_interp_strip_fn tci_interp_strip_kernel(tc_dtype t, bool both, bool best);
/* Adds points [begin, end) to the lanes of acc; from: the factors at
 * point 0. */
TCI_FN void tci_interp_strip_run(const tci_interp_strip *s, char *workspace, char *acc,
                                 const char *const from[2], int64_t lanes, int64_t begin,
                                 int64_t end);
/* interp/loop_in_kernel.c: of an in-kernel loop, whose members p has; longjmps on failure. And its
 * rounds, whose members `run` runs. */
TCI_FN void tci_interp_prepare_loop(tci_interp *p, const tci_kernel *k);
TCI_FN void tci_interp_run_loop(const tci_interp *p, tci_interp_run_fn run, char *workspace,
                                void *const *bufs, const int64_t *lits, int64_t *fault,
                                int64_t begin, int64_t end);
/* interp/lower_to_linear.c: fills p (p->s is ready; longjmps on failure). */
TCI_FN void tci_interp_prepare(tci_interp *p, const tci_kernel *k);

#endif
