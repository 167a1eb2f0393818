/* loop/ir.h - defines the loop IR: how one kernel runs, as a small tree of statements.
 *
 * A function body is a block (block 0) of statements; FOR and IF own further blocks. There are
 * three kinds of names:
 *   values   v12: typed (compute dtype, lanes), written once, or mutable (VAR and SET, for
 *            accumulators)
 *   indices  x7:  64-bit loop variables and index lets, written once
 *   locals   m3:  arrays on the stack
 * An index expression (tci_lx) is a hash-consed tree over indices; it is printed inline. Numbers
 * in index expressions, strides, bounds of ranges and sizes of indexed axes may be symbolic
 * (base/dim.h): the function receives their values after its literals. Steps, lane counts and
 * sizes of locals outside of work memory are known. Memory is a base (operand or local) plus an
 * offset in elements; the access kinds are the dialect's (tci_mem), so a printer only asks for
 * names.
 *
 * Invariants (loop/verify.c; numbers in loop/verify_bounds.c): a name is defined before its use, in
 * the same or an enclosing block; lanes of a PRIM's arguments agree with its result; DIV and MOD
 * only see nonnegative values; every access is inside its operand or local; an output operand is
 * never loaded; SET names a mutable value of the same type. */
#ifndef TCI_LOOP_IR_H
#define TCI_LOOP_IR_H

#include "schedule.h"
#include "intrinsics.h"

typedef enum tci_lx_op {
    TCI_LX_CONST,      /* c */
    TCI_LX_VAR,        /* index a */
    TCI_LX_ADD,        /* a + b */
    TCI_LX_MUL,        /* a * c */
    TCI_LX_DIV,        /* a / c, a >= 0, c > 0 */
    TCI_LX_MOD,        /* a % c, likewise */
    TCI_LX_MIN,        /* smaller of a and b */
    TCI_LX_MAX,        /* larger of a and b */
    TCI_LX_THREAD,     /* number of the thread among those of its vector; 0 where threads == 1 */
    TCI_LX_ROW,        /* number of the vector among those of its block; 0 where rows == 1 */
    TCI_LX_TASK_BEGIN, /* parameters of the function */
    TCI_LX_TASK_END,
    /* elements from offset a of operand b up to an address that is a multiple of c bytes */
    TCI_LX_HEAD,
    TCI_LX_GIVEN /* the position of the template's main loop on axis c of the kernel */
} tci_lx_op;
typedef struct tci_lx {
    uint8_t op;
    int32_t a, b;
    tci_dim c;
} tci_lx;

typedef enum tci_lop {
    TCI_L_FOR,        /* for index dst = x; < n; += imm: body; `unroll` times written out */
    TCI_L_IF,         /* if value args[0]: body */
    TCI_L_INDEX,      /* index dst = x */
    TCI_L_FROM_VALUE, /* index dst = integer value args[0] */
    TCI_L_LOCAL,      /* declares local dst */
    TCI_L_CONST,      /* value dst = value */
    TCI_L_LITERAL,    /* value dst (i64) = word imm of the literals */
    TCI_L_PRIM,       /* value dst = prim(args) */
    TCI_L_MEM,        /* mem: a load, a store or a lane operation; see tci_lmem_uses */
    TCI_L_IN_RANGE,   /* bool dst = lo <= x <= imm */
    TCI_L_TO_VALUE,   /* i64 dst = x */
    TCI_L_ELSEWHERE,  /* bool dst = operands base and imm have different memory */
    TCI_L_COPY,       /* value dst = args[0] as it is now */
    /* i64 dst, one or in lanes, = args[0] as an index of an axis of size imm; see TCI_K_FAULT */
    TCI_L_FAULT,
    TCI_L_VAR, /* mutable dst, first value args[0] */
    TCI_L_SET, /* mutable dst = args[0] */
    TCI_L_NOTE /* text for the reader */
} tci_lop;

typedef struct tci_lstmt {
    uint8_t op;       /* tci_lop */
    uint8_t mem;      /* MEM: tci_mem */
    uint8_t prim;     /* PRIM: tci_prim */
    int32_t dst;      /* value, index or local that is defined or set; -1 none */
    int32_t args[3];  /* values; -1 unused */
    int32_t base;     /* MEM: operand, or ~local */
    int32_t x;        /* index expression: offset, first value, lower bound */
    int32_t n;        /* index expression: count of lanes, upper bound */
    tci_dim lo, imm;  /* lower bound; stride, lane, step, size, upper bound */
    tci_value value;  /* CONST */
    int32_t body;     /* block */
    int32_t unroll;   /* FOR: a wish, 0 none */
    const char *text; /* NOTE */
} tci_lstmt;

typedef struct tci_lvalue {
    int8_t dtype;
    bool is_mutable;
    int32_t lanes;
    int32_t block; /* where it is defined */
    int32_t splat; /* derived: the same in every lane, -1 not made yet */
    int32_t index; /* derived: the same as an index, -1 not made yet */
} tci_lvalue;
typedef struct tci_lindex {
    int32_t block;
    bool is_loop;
    int64_t multiple; /* derived: it is always a multiple of this; 0: it is 0 */
} tci_lindex;
typedef struct tci_llocal {
    int8_t dtype; /* storage dtype */
    tci_dim n;
    bool is_lane;  /* n == lanes, and each thread touches its own lanes only */
    int32_t work;  /* lx: bytes from the start of work memory; -1: on the stack, or shared */
    bool is_given; /* memory of the template's main loop */
} tci_llocal;
typedef struct tci_lblock {
    tci_lstmt *stmts;
    int n, cap;
    int32_t parent; /* -1: the body of the function */
    int32_t depth;
} tci_lblock;

typedef struct tci_loop_member { /* of a merged kernel */
    const tci_kernel *kernel;
    tci_loop *loop;
    int32_t first_same;       /* the first member that has this loop */
    int32_t operand, literal; /* its first one among those of the merged kernel */
    int64_t first_task;
} tci_loop_member;

enum { TCI_LOOP_SCORES = 6 }; /* blocks of a template other than its epilogue slot, at most */

struct tci_loop {
    tci_scratch *s;
    int lanes;     /* of a vector */
    int resident;  /* blocks that a processor should hold at once; 0: as it comes */
    int threads;   /* that a vector is spread over, lanes / threads neighbours each */
    bool together; /* all threads of a warp come to each statement that stores a vector */
    int rows;      /* vectors of a block side by side, each in a warp or a part of one: then no
                     * array is shared and nothing asks for all threads of the block */
    const char *note;
    tci_koperand *operands;
    int n_operands;
    tci_lx *lx;
    int n_lx, cap_lx;
    /* the distinct symbolic numbers in use, in the order of their first use (tci_loop_find_dims) */
    tci_dim *dims;
    int n_dims, cap_dims;
    int32_t *lx_hash;
    int n_lx_hash;
    /* derived: latest index let of an expression, -1 none */
    int32_t *lx_index;
    int cap_lx_index;
    tci_lvalue *values;
    int n_values, cap_values;
    tci_lindex *indices;
    int n_indices, cap_indices;
    tci_llocal *locals;
    int n_locals, cap_locals;
    tci_lblock *blocks;
    int n_blocks, cap_blocks;
    bool faults;
    bool narrow; /* every index, and every part of one, fits into 32 bits with a sign */
    tci_dim n_tasks;
    /* of the thread's, or, of blocks, the step's work memory, which follows the operands; 0 none */
    tci_dim work_bytes;
    /* Not NULL: a merged kernel, of its members in their order. All other fields are empty except
     * operands, n_tasks, faults, and `threads`, the most that a member has. */
    tci_loop_member *members;
    int n_members;
    /* Not NULL: an in-kernel loop, with members as in a merged kernel (whose first_task is 0).
     * n_tasks is the number of iterations; on GPUs 1, and two words after the literals and dims are
     * the first iteration and the end of the range. */
    const tci_kloop *rounds;
    bool is_member; /* the function is called by that of a merged kernel, */
    bool is_inner;  /* or is compiled into that of an in-kernel loop */
    /* Not NULL: a kernel template. The dialect prints the main loop, and block 0 is its epilogue
     * slot. */
    const struct tci_matrix *matrix;
    /* Not NULL: a template of attention or its gradients, `matrix` is the first of its last
     * products, and `scores` are slots (loop/flash_attention.h), which read and write `given`. */
    const struct tci_attention *attention;
    struct tci_loop *scores[TCI_LOOP_SCORES];
    int n_scores;
};

/* Properties of a tci_mem that its statement needs; the printer and the verifier use them. */
enum {
    TCI_LMEM_DST = 1,     /* gives a value */
    TCI_LMEM_ADDRESS = 2, /* base and x */
    TCI_LMEM_STRIDE = 4,  /* imm as stride */
    TCI_LMEM_VALUE = 8,   /* args[0] as the value stored or transformed */
    TCI_LMEM_MASK = 16,   /* args[0] as mask */
    TCI_LMEM_COUNT = 32,  /* n */
    TCI_LMEM_FIRST = 64,  /* x as first value */
    TCI_LMEM_LANE = 128,  /* imm as a lane number */
    TCI_LMEM_WRITES = 256,
    TCI_LMEM_SECOND = 512, /* args[1] as a second value, */
    TCI_LMEM_THIRD = 1024, /* and args[2] as a third */
    TCI_LMEM_DTYPE = 2048  /* imm as a dtype */
};

/* Words in which blocks publish values to each other (TCI_MEM_TELL). */
static inline int tci_lmem_told(tc_dtype t)
{
    return tci_dtype_get(t)->bytes / (int)sizeof(uint32_t);
}

/* loop/verify_bounds.c */
TCI_FN void tci_loop_walk(tci_scratch *s, const tci_loop *l);
/* loop/index_width.c: of a finished loop. */
TCI_FN bool tci_loop_is_narrow(tci_scratch *s, const tci_loop *l);
/* loop/ir.c */
TCI_FN tci_loop *tci_loop_make(tci_scratch *s, const tci_kernel *k);
TCI_FN int tci_loop_block(tci_loop *l, int parent);
TCI_FN bool tci_loop_encloses(const tci_loop *l, int outer, int inner); /* same block counts */
TCI_FN int tci_loop_value(tci_loop *l, tc_dtype t, int lanes, int block);
TCI_FN int tci_loop_index(tci_loop *l, int block, bool is_loop);
TCI_FN int tci_loop_local(tci_loop *l, tc_dtype storage, tci_dim n);
TCI_FN tci_lstmt tci_loop_stmt(tci_lop op); /* every reference -1 */
TCI_FN void tci_loop_append(tci_loop *l, int block, tci_lstmt st);
/* Index expressions: hash-consed, constants folded. */
TCI_FN int tci_lx_const(tci_loop *l, tci_dim c);
TCI_FN int tci_lx_var(tci_loop *l, int index);
TCI_FN int tci_lx_make(tci_loop *l, tci_lx_op op, int a, int b, tci_dim c);
/* Also a symbolic number. */
TCI_FN bool tci_lx_is_const(const tci_loop *l, int x, tci_dim *c);
/* x is always a multiple of the result; 0: it is 0. */
TCI_FN int64_t tci_lx_multiple(const tci_loop *l, int x);
TCI_FN int64_t tci_lx_gcd(int64_t a, int64_t b);
TCI_FN int tci_lx_block(const tci_loop *l, int x); /* deepest block of the indices in it */
TCI_FN unsigned tci_lmem_uses(tci_mem m);
/* Lists what the finished function needs in `dims`. */
#ifdef TC_DYNAMIC_SHAPES
TCI_FN void tci_loop_find_dims(tci_loop *l);
#else
#define tci_loop_find_dims(l) ((void)(l))
#endif

#endif
