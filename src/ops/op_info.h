/* ops/op_info.h - properties of ops: one info row each, generated from the rows of ops/table.h.
 * Passes query the row; none has a list of ops of its own for a property that is here.
 *
 * Invariants (tests/unit/test_info.c):
 *  - a leaf has no operands; MEMORY and NUMBER are leaves, and no leaf is both
 *  - STORABLE ops have a cost, all others have none
 *  - an EFFECT has no result, all other ops have one; effects are UNIQUE */
#ifndef TCI_OPS_OP_INFO_H
#define TCI_OPS_OP_INFO_H

#include "dtype.h"
#include "table.h"

typedef enum tci_fact {
    TCI_IS_LEAF = 1 << 0,      /* has no operands */
    TCI_IS_MEMORY = 1 << 1,    /* a leaf that is in memory, whatever is planned */
    TCI_IS_NUMBER = 1 << 2,    /* a leaf that is a 0-d number, kept in the node */
    TCI_IS_UNIQUE = 1 << 3,    /* equal ones are not merged */
    TCI_IS_EFFECT = 1 << 4,    /* has no result: only ever a root */
    TCI_IS_VIEW = 1 << 5,      /* each element is one of the first operand's, always */
    TCI_IS_SHIFT = 1 << 6,     /* reads at other indices, which grow where such ops are nested */
    TCI_IS_POINTWISE = 1 << 7, /* an element of the result needs that of each operand alone */
    TCI_IS_STORABLE = 1 << 8,  /* computes an element: keeping it in memory may pay */
    TCI_IS_EXACT = 1 << 9,     /* the value needs no rounding (the cost column in ops/table.h) */
    TCI_IS_FOLD = 1 << 10,     /* one value of many, and over nothing it is the identity */
    TCI_IS_ARG = 1 << 11,      /* a reduction to an index: of one axis, i64 */
    TCI_IS_QUIET = 1 << 12,    /* says nothing in the name of a kernel */
    TCI_IS_DRAWN = 1 << 13     /* made of numbers and the index alone: computed again, not stored */
} tci_fact;

/* Of a reduction: its value over nothing. */
typedef enum tci_identity {
    TCI_IDENTITY_0,
    TCI_IDENTITY_1,
    TCI_IDENTITY_LOWEST, /* of the dtype: may not be a result */
    TCI_IDENTITY_HIGHEST
} tci_identity;

/* The columns of the attribute lists, as ops/table.h says. */
typedef enum tci_attr_kind {
    TCI_ATTR_AXIS,
    TCI_ATTR_SIZE,
    TCI_ATTR_PLACE,
    TCI_ATTR_COUNT,
    TCI_ATTR_LABEL,
    TCI_ATTR_FLAG,
    TCI_ATTR_MODE
} tci_attr_kind;

typedef enum tci_attr_times {
    TCI_ATTR_FIRST,
    TCI_ATTR_EACH,
    TCI_ATTR_REST,
    TCI_ATTR_LAST
} tci_attr_times;

typedef struct tci_attr_info {
    const char *name;
    uint8_t kind, times; /* tci_attr_kind, tci_attr_times */
} tci_attr_info;

/* A list in the order of the words: FIRST, then the group of EACH or REST, LAST. */
typedef struct tci_attr_list {
    const tci_attr_info *items;
    uint8_t n_first, n_group, n_last;
    bool each; /* the group stands for each axis of the first input */
} tci_attr_list;

typedef struct tci_op_info {
    char name[24];       /* no pointer, which a program would relocate when it starts */
    uint16_t facts;      /* of tci_fact */
    uint8_t cost;        /* flops of one evaluation, of a CAT for each operand; 0: moves only */
    int32_t least, most; /* operands */
    uint8_t results;
    uint8_t identity;  /* tci_identity of a FOLD or ARG */
    uint8_t red, part; /* of a reduction: tci_red_op, and which part of it is the result */
    const tci_attr_list *attrs;
} tci_op_info;

static inline bool tci_op_is_ew(int op)
{
    return op < TCI_OP_EW_END;
}
static inline bool tci_op_is_reduce(int op)
{
    return op >= TCI_OP_EW_END && op < TCI_OP_REDUCE_END;
}
static inline bool tci_op_is_composite(int op)
{
    return op >= TCI_OP_SPECIAL_END;
}

TCI_FN const tci_op_info *tci_op_get(int op);
TCI_FN const char *tci_op_name(int op); /* "?" for what is none */
/* facts: of tci_fact; whether the op has one of them. */
TCI_FN bool tci_op_is(int op, unsigned facts);
TCI_FN tci_value tci_identity_value(tci_identity identity, tc_dtype t);
/* Value of reduction `op` over no elements in dtype t; for a row with an index, that of the
 * compared value. */
TCI_FN tci_value tci_op_identity(int op, tc_dtype t);
/* The reduction that a mode but SET is, and the elementwise op. */
TCI_FN int tci_mode_fold(int mode);
TCI_FN int tci_mode_pair(int mode);

/* The attribute that word `word` of n is; NULL: the list has no such word. */
TCI_FN const tci_attr_info *tci_op_attr(int op, int n, int word);
/* Whether n words are as many as the list asks for, given the rank of the first input. */
TCI_FN bool tci_op_takes_words(int op, int n, int rank);
/* Whether a word of that kind may be a symbolic size. */
static inline bool tci_attr_is_dim(const tci_attr_info *a)
{
    return a->kind == TCI_ATTR_SIZE || a->kind == TCI_ATTR_PLACE;
}

#endif
