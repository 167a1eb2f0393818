/* loop/lower_expr.h - declares the lowering of a kernel's scalar expressions to loop IR, inside a
 * loop nest that is being built.
 *
 * A binding defines an axis at this point of the nest: a linear form over index variables, its
 * range, and whether it stands for a vector of neighbouring values. Bindings are numbered; a value
 * is memoized by (instruction, bindings of the axes it depends on), so unrolled copies and
 * register tiles share whatever does not differ between them. A value is emitted in the deepest
 * block that one of its operands needs: invariants are hoisted. */
#ifndef TCI_LOOP_LOWER_EXPR_H
#define TCI_LOOP_LOWER_EXPR_H

#include "ir.h"

/* c + sum coef[i] * index var[i]; immutable once made. */
typedef struct tci_lin {
    tci_dim c;
    int32_t n;
    const int32_t *var;
    const tci_dim *coef;
} tci_lin;

typedef struct tci_bind {
    int32_t id;
    bool is_vector; /* lane i of the axis is at + i */
    tci_lin at;
    tci_dim lo, hi; /* range of every (existing) lane, inclusive */
    int32_t n;      /* index expression: lanes that exist; -1: all */
    int32_t block;  /* what is loaded at this position stays in this block: a branch's, else 0 */
} tci_bind;

typedef struct tci_lmemo {
    int32_t value, next;
    int32_t n_sig;
    const int32_t *sig; /* binding ids of the axes the instruction depends on */
} tci_lmemo;

/* The value of a load at a place: the index expressions of its address and of the guards that are
 * not decided there, with their numbers. */
typedef struct tci_lplace {
    int32_t inst, value;
    int32_t vec; /* binding id of the vector axis */
    int32_t n_at;
    const int32_t *at;
} tci_lplace;

/* An instruction whose values are in a local array: at base + sum coef[a] * (axis a - origin[a])
 * over the kernel's axes. Stage `stage` stores the value where it computes it, the others from
 * `first` to `last` load it. */
typedef struct tci_lkeep {
    int32_t inst;
    int32_t local; /* or ~operand: it is there, and no stage stores it */
    int32_t stage, first, last;
    bool is_padded; /* whole vectors may be touched where only some lanes exist; of what a stage
                         * stores only vectors of neighbours, as the padding is after each row */
    tci_lin base;
    tci_dim *coef;
    tci_lin *origin;
    /* Not NULL: of this many neighbouring points in an element (tci_build_word), the coefs of a
     * point's number; such elements are word_step apart. The caller loads them
     * (loop/dot_packing.h). */
    tci_dim *point;
    int points;
    int64_t word_step;
} tci_lkeep;

typedef struct tci_build {
    tci_scratch *s;
    const tci_kernel *k;
    tci_loop *l;
    int cur;                      /* block under construction */
    int floor;                    /* innermost open branch, or 0 */
    int stage;                    /* stage being emitted */
    const struct tci_causal *cut; /* of its rows (loop/causal_bound.h); NULL: none known, */
    int guard;                    /* and its GUARD where its truth is known here, -1 not, */
    int8_t guard_truth;           /* tci_truth */
    const bool *holds;            /* per guard: does it hold at all points here? NULL: not known */
    int cut_from;                 /* lx: what rows that are cut have before it nothing reads */
    const bool *is_one;           /* of the cut, where all is masked, else NULL */
    bool waits;                   /* a machine on which reading takes long: many reads at once */
    const tci_bind **bind;        /* per axis, NULL: not bound here */
    int vec_axis;                 /* axis with a vector binding, -1 none */
    int n_bind_ids;
    tci_lmemo *memo;
    int n_memo, cap_memo;
    int32_t *memo_first; /* per instruction */
    bool meets;          /* loads are looked for by their positions, too */
    tci_lplace *places;
    int n_places, cap_places;
    tci_lkeep **keeps;
    int n_keeps, cap_keeps;
    int32_t *todo;
    int n_todo, cap_todo;
    struct tci_lkx *kx; /* what the traversal over an index expression under way found */
    /* rows of a tile that loads may turn: lane i of row r is element r of vector i; NULL none */
    const tci_bind *const *turn_rows;
    int turn_axis, n_turn;
    /* inside a loop over the lanes of a vector binding: that binding, its axis, the lane, the block
     * before and the floor there */
    const tci_bind *lane_bind;
    int lane_axis, lane_index, lane_parent, lane_floor;
} tci_build;

/* Blocks. tci_build_for opens a loop and returns its index; tci_build_close appends it to its
 * parent. */
typedef struct tci_lopen {
    tci_lstmt st;
    int parent, floor;
} tci_lopen;
TCI_FN int tci_build_for(tci_build *b, int begin, int end, int64_t step, tci_lopen *open);
TCI_FN void tci_build_if(tci_build *b, int condition, tci_lopen *open);
/* lo <= x <= hi, of an index expression, as a condition in the current block. */
/* True if operands a and b have different memory. */
TCI_FN int tci_build_elsewhere(tci_build *b, int a, int other);
TCI_FN int tci_build_in_range(tci_build *b, int x, tci_dim lo, tci_dim hi);
TCI_FN int tci_build_inside(tci_build *b, tci_lin at, tci_dim size); /* 0 <= at < size */
TCI_FN void tci_build_close(tci_build *b, const tci_lopen *open);
TCI_FN void tci_build_note(tci_build *b, const char *text);

/* Linear forms and index expressions. */
TCI_FN tci_lin tci_lin_const(tci_dim c);
TCI_FN tci_lin tci_lin_var(tci_build *b, int index);
TCI_FN tci_lin tci_lin_add(tci_build *b, tci_lin x, tci_lin y);
TCI_FN tci_lin tci_lin_mul(tci_build *b, tci_lin x, tci_dim c);
TCI_FN tci_lin tci_lin_plus(tci_lin x, tci_dim c);
TCI_FN int tci_build_lx(tci_build *b, tci_lin x); /* hoists what is invariant */
/* an index holding lx, in its own block */
TCI_FN tci_lin tci_build_let(tci_build *b, int lx);
/* an integer value as an index; an index expression as a value of integer dtype t */
TCI_FN int tci_build_value_index(tci_build *b, int value);
TCI_FN int tci_build_number(tci_build *b, int x, tc_dtype t);
/* under the current bindings, lane 0 */
TCI_FN tci_lin tci_build_kx(tci_build *b, int kx);
TCI_FN void tci_build_range(const tci_build *b, int kx, tci_dim *lo, tci_dim *hi);
/* kx = *coef * axis + something that does not depend on it */
TCI_FN bool tci_build_coef(const tci_kernel *k, int kx, int axis, tci_dim *coef);
TCI_FN bool tci_build_depends(uint64_t axes, int axis);
/* Of a load from panels of n, (x / n) * *step + x % n * wide + something that does not depend on
 * the axis: x, which grows by 1 along the axis; -1: its index is another one. */
TCI_FN int tci_build_panel(const tci_kernel *k, const tci_kinst *load, int axis, int wide,
                           tci_dim *step);
/* Smallest number of times that c must be added to a number >= lo to make it non-negative. */
TCI_FN tci_dim tci_build_shift(tci_dim lo, tci_dim c);

/* Bindings. */
TCI_FN const tci_bind *tci_build_bind(tci_build *b, tci_lin at, tci_dim lo, tci_dim hi,
                                      bool is_vector, int n);
TCI_FN void tci_build_set(tci_build *b, int axis, const tci_bind *bind);
/* An axis of known size at `first` and the n - 1 positions after it, all within the axis. */
TCI_FN void tci_build_neighbours(tci_build *b, int axis, tci_lin first, int n,
                                 const tci_bind **binds);
/* The n digits, the last one lowest, of a number in [0, the product of their sizes). */
TCI_FN void tci_build_split(tci_build *b, int n, const int64_t *sizes, tci_lin number,
                            tci_lin *digits);
/* Bindings of n axes of known sizes to the digits, the last axis lowest, of a number in [0, the
 * product of their sizes). */
TCI_FN void tci_build_digits(tci_build *b, int n, const int32_t *axes, tci_lin number,
                             const tci_bind **binds);

/* Statements that give values, in the deepest block that a part of them needs, at least `block`;
 * what reads a mutable value stays in the current block. */
TCI_FN int tci_build_const(tci_build *b, tc_dtype t, tci_value v);
TCI_FN int tci_build_prim(tci_build *b, tci_prim p, tc_dtype result, int n, const int *args,
                          int imm);
TCI_FN int tci_build_splat(tci_build *b, int value);
TCI_FN int tci_build_widen(tci_build *b, int value, int lanes);
TCI_FN int tci_build_mem(tci_build *b, tci_lstmt st, tc_dtype t, int lanes, int block);
/* A vector, or first lanes of one that are whole threads': each thread of a block has its part at a
 * multiple of the part's size. */
TCI_FN bool tci_build_is_aligned(const tci_build *b, const tci_lstmt *st);
/* deepest branch among their bindings */
TCI_FN int tci_build_floor(const tci_build *b, uint64_t axes);
/* The one of two blocks, one within the other, that is within. */
TCI_FN int tci_build_deeper(const tci_build *b, int x, int y);
TCI_FN int tci_build_mutable(tci_build *b, int first);
TCI_FN void tci_build_assign(tci_build *b, int mutable_value, int value);
TCI_FN int tci_build_local(tci_build *b, tc_dtype t, int64_t n, int block); /* declares an array, */
TCI_FN int tci_build_work(tci_build *b, tc_dtype t, tci_dim n);             /* in work memory */
TCI_FN int tci_build_copy(tci_build *b, int value);

/* Kernel values, loop/lower_expr.c; loads, guards and indices, loop/lower_access.c. */
TCI_FN tci_build *tci_build_make(tci_scratch *s, const tci_kernel *k, tci_loop *l);
TCI_FN int tci_build_value(tci_build *b, int inst);
/* Starts keeping `inst` in an array, for all stages; its base, coefficients and origins are 0. */
TCI_FN tci_lkeep *tci_build_keep(tci_build *b, int inst, int local, int stage);
TCI_FN int tci_build_memo_lookup(tci_build *b, int inst); /* -1: not known here */
TCI_FN void tci_build_remember(tci_build *b, int inst, int value);
/* The first n of `all` points as one element of 32 bits, the others zeros: of two f32 that are bf16
 * the first is the upper half; of integers, i32 with only the last 32 / all bits in use, the
 * first are the lowest bits. */
TCI_FN int tci_build_word(tci_build *b, int n, int all, const int *points);
/* Element number `word` (tci_lkeep.point) into its array. */
TCI_FN void tci_build_keep_word(tci_build *b, const tci_lkeep *keep, tci_lin word, int value);
/* Remembers a value that was made along with another one, and stores it where it is kept. */
TCI_FN void tci_build_leave(tci_build *b, int inst, int value);
/* The value before rounding, if storing it as dtype t rounds in the same way. */
TCI_FN int tci_build_unrounded(const tci_build *b, int t, int value);
TCI_FN void tci_build_store(tci_build *b, const tci_kstore *st, int value, bool stream);
/* Combines the stored element with the value of a SCATTER. */
typedef int (*tci_store_merge)(tci_build *b, const tci_kstore *store, int old, int value);
/* True if an offset is linear in the vector axis, or independent of it. */
TCI_FN bool tci_build_is_row(const tci_build *b, int kx);
/* The elements that a store with such an offset overwrites, as they are before it. */
TCI_FN int tci_build_stored(tci_build *b, const tci_kstore *store);
/* Reads the elements, merges and stores them, where the store's guard holds. */
TCI_FN void tci_build_update(tci_build *b, const tci_kstore *store, tci_store_merge merge);
/* One vector of two whose blocks of h lanes are exchanged: SWAP_LOW or SWAP_HIGH; or whose lanes
 * are interleaved: WEAVE_LOW or WEAVE_HIGH, and h is 0. */
TCI_FN int tci_build_swap(tci_build *b, tci_mem mem, int x, int y, int h);
TCI_FN int tci_build_access(tci_build *b, int inst); /* LOAD, INDEX, GUARD, FAULT, RED */
typedef enum tci_truth { TCI_NEVER, TCI_ALWAYS, TCI_SOMETIMES } tci_truth;
TCI_FN tci_truth tci_build_guard_truth(const tci_build *b, const tci_kinst *inst);
/* True if guard g of the kernel holds at all bound points. */
TCI_FN bool tci_build_guard_holds(const tci_build *b, int g);
/* lanes of the vector axis' binding, else 1 */
TCI_FN int tci_build_vector_lanes(const tci_build *b);
TCI_FN bool tci_build_is_vector(const tci_build *b, uint64_t axes);

#endif
