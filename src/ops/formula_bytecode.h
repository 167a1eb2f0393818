/* ops/formula_bytecode.h - postfix bytecode (for a stack machine) of the formulas in ops/table.h:
 * the value and the gradient of an op, and the combiner of a reduction.
 *
 * tools/amalgamate.c compiles the columns of ops/table.h into ops/formula.gen.h. A formula is a
 * byte string in postfix order: a word pops its operands from a stack (the last operand is on top)
 * and pushes one value. The type of the values, and so the meaning of a word, depends on the
 * interpreter. There are four interpreters of the first two columns, each a loop over the words and
 * a function for one word:
 *
 *   kernel/lower_graph.c    value column     instructions of a kernel
 *   rewrite/rewrite.c       value column     a constant
 *   interp/reference.c      value column     a scalar, for tests
 *   grad/vjp.c              gradient column  nodes of the graph
 *
 * The formulas of the built rows are like gradient columns, over operands A to E: ops/composite.c
 * makes nodes of them. The element and combine columns of the combine rows are read by
 * ops/combine.c, which makes straight-line programs of them.
 *
 * A word is one of
 *   0 .. TCI_W_A - 1           value column: a tci_prim. Gradient column: an elementwise tci_op, or
 *                              TCI_OP_WHERE
 *   TCI_W_A .. TCI_W_OWN_END   the words that ops/table.h lists
 *   TCI_W_K + i                number i of the pool (tci_formula_number), in the formula's dtype
 *   TCI_W_END                  the end
 *
 * Invariants (established by the amalgamator, checked on every formula by
 * tests/unit/test_formula.c):
 *  - the stack never holds more than TCI_FORMULA_DEPTH values, never underflows, and holds exactly
 *    one value at the end. An absent formula is TCI_W_END alone
 *  - B occurs only in rows of two operands or more, C of three; words occur only in the columns
 *    that table.h lists
 *  - the table has no pointers: no relocations, nothing to do at load time */
#ifndef TCI_OPS_FORMULA_BYTECODE_H
#define TCI_OPS_FORMULA_BYTECODE_H

#include "prim.h"
#include "table.h"

enum {
    TCI_W_BEFORE_ = 127, /* prims and ops are below */
#define TCI_ROW(id, operands, where) TCI_W_##id,
    TCI_COLUMN_WORDS(TCI_ROW)
#undef TCI_ROW
        TCI_W_OWN_END,
    TCI_W_K = 160,
    TCI_W_END = 255
};

/* Stack depth that a reader needs. */
enum { TCI_FORMULA_DEPTH = 12 };

/* Kind of a row's gradient column. */
typedef enum tci_gradient {
    TCI_GRADIENT_NONE, /* asking for it is an error */
    TCI_GRADIENT_LEAF, /* no operands */
    TCI_GRADIENT_FLAT, /* zero everywhere */
    TCI_GRADIENT_FORMULA,
    TCI_GRADIENT_OWN,      /* a function: tci_vjp_ID */
    TCI_GRADIENT_EXPANSION /* a composite's: that of what it expands into */
} tci_gradient;

enum { TCI_PARTS = 4 }; /* of a partial result of a reduction, at most */

/* Where the formulas of a combine row begin; 0: no such part. */
typedef struct tci_combine_row {
    uint16_t element[TCI_PARTS], part[TCI_PARTS];
} tci_combine_row;

/* Where the formulas of an op begin. */
typedef struct tci_formula_row {
    uint8_t gradient;    /* tci_gradient */
    uint16_t value;      /* of an elementwise row */
    uint16_t operand[3]; /* what each operand takes from the result's gradient */
} tci_formula_row;

TCI_FN const uint8_t *tci_formula_value(int op);
TCI_FN const uint8_t *tci_formula_gradient(int op, int which);
TCI_FN tci_gradient tci_formula_gradient_kind(int op);
TCI_FN const uint8_t *tci_formula_built(tci_built built);
/* Of a tci_red_op: part `part` of what an element is, and of two tuples joined; NULL: none. */
TCI_FN const uint8_t *tci_formula_element(int red, int part);
TCI_FN const uint8_t *tci_formula_combine(int red, int part);
/* Number of operands of a word in the value and combine columns, and in the gradient column. */
TCI_FN int tci_formula_value_operands(int word);
TCI_FN int tci_formula_gradient_operands(int word);
TCI_FN double tci_formula_number(int word);

#endif
