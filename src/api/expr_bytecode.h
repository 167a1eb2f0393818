/* api/expr_bytecode.h - postfix bytecode of text expressions, between the parser (api/expr_parse.c)
 * and the stack machine (api/expr.c).
 *
 * In: a text (api/expr_parse.c). Out: steps for a stack machine (api/expr.c). A text with an error
 * has no valid steps, but the position and message of the first error. Invariants: executing the
 * steps in order never pops an empty stack and leaves one value; every position is within the text.
 */
#ifndef TCI_API_EXPR_BYTECODE_H
#define TCI_API_EXPR_BYTECODE_H

#include "operand.h"

/* Operators of two operands: X(ID, spelling, precedence, the op that tensors take). Python's
 * precedences; NOT and the signs, which have one operand, stand between them. */
#define TCI_EXPR_BINARY(X)                                                                         \
    X(OR, "or", 1, "logical_or")                                                                   \
    X(AND, "and", 2, "logical_and")                                                                \
    X(LE, "<=", 4, "le")                                                                           \
    X(GE, ">=", 4, "ge")                                                                           \
    X(EQ, "==", 4, "eq")                                                                           \
    X(NE, "!=", 4, "ne")                                                                           \
    X(LT, "<", 4, "lt")                                                                            \
    X(GT, ">", 4, "gt")                                                                            \
    X(BITOR, "|", 5, "bitwise_or")                                                                 \
    X(BITXOR, "^", 6, "bitwise_xor")                                                               \
    X(BITAND, "&", 7, "bitwise_and")                                                               \
    X(SHL, "<<", 8, "bitwise_left_shift")                                                          \
    X(SHR, ">>", 8, "bitwise_right_shift")                                                         \
    X(ADD, "+", 9, "add")                                                                          \
    X(SUB, "-", 9, "sub")                                                                          \
    X(MUL, "*", 10, "mul")                                                                         \
    X(DIV, "/", 10, "div")                                                                         \
    X(FLOORDIV, "//", 10, "floor_divide")                                                          \
    X(MOD, "%", 10, "remainder")                                                                   \
    X(MATMUL, "@", 10, "matmul")                                                                   \
    X(POW, "**", 12, "pow")
enum { TCI_EXPR_AT_NOT = 3, TCI_EXPR_AT_COMPARE = 4 };
/* Operators of one operand. */
#define TCI_EXPR_UNARY(X)                                                                          \
    X(NOT, "not", TCI_EXPR_AT_NOT, "logical_not")                                                  \
    X(NEG, "-", 11, "neg")                                                                         \
    X(PLUS, "+", 11, NULL)                                                                         \
    X(INVERT, "~", 11, "bitwise_not")

typedef enum tci_expr_op {
#define TCI_ROW(id, spelling, precedence, name) TCI_EXPR_##id,
    TCI_EXPR_BINARY(TCI_ROW) TCI_EXPR_UNARY(TCI_ROW) TCI_EXPR_OPS
#undef TCI_ROW
} tci_expr_op;
typedef struct tci_expr_op_row {
    const char *spelling, *name;
    int precedence;
} tci_expr_op_row;
TCI_FN const tci_expr_op_row *tci_expr_op_get(int op);

typedef enum tci_expr_do {
    TCI_EXPR_DO_NUMBER, /* pushes `number` */
    TCI_EXPR_DO_TEXT,   /* pushes the text between the quotes */
    TCI_EXPR_DO_NAME,   /* pushes what the identifier stands for */
    TCI_EXPR_DO_NONE,   /* pushes None: a bound of a slice that is left out */
    TCI_EXPR_DO_ELLIPSIS,
    TCI_EXPR_DO_UNARY,    /* op */
    TCI_EXPR_DO_BINARY,   /* op */
    TCI_EXPR_DO_LINK,     /* a comparison whose right operand stays on the stack */
    TCI_EXPR_DO_LIST,     /* n values to one */
    TCI_EXPR_DO_SLICE,    /* start, stop and step to one */
    TCI_EXPR_DO_INDEX,    /* a value and n items */
    TCI_EXPR_DO_KEYWORD,  /* the value gets the name */
    TCI_EXPR_DO_CALL,     /* n arguments of the op of that name */
    TCI_EXPR_DO_ATTRIBUTE /* .T, .mT, .shape */
} tci_expr_do;

typedef struct tci_expr_step {
    uint8_t what, op; /* tci_expr_do, tci_expr_op */
    int at, length;   /* its position in the text, bytes */
    int n;
    tc_arg number;
} tci_expr_step;

typedef struct tci_expr_code {
    tci_graph *g; /* whose memory the steps are in */
    const char *text;
    int bytes; /* of the text */
    tci_expr_step *steps;
    int n_steps, cap_steps;
    tc_status status; /* of the first mistake, at `wrong` */
    int wrong, wrong_length;
    char message[200];
} tci_expr_code;

/* Parses code->text. False: status and message say why. Ends with tci_expr_code_free either way. */
TCI_FN bool tci_expr_parse(tci_expr_code *code);
TCI_FN void tci_expr_code_free(tci_expr_code *code);
/* Whether the bytes are an identifier. */
TCI_FN bool tci_expr_is_name(const char *text, int n);
/* Replaces *list by one that has room for n items of that size; false: out of memory. */
TCI_FN bool tci_expr_room(tci_graph *g, void *list, int *cap, int n, size_t item_bytes);

/* ---- api/expr_number.c: arithmetic of numbers as Python does it ---- */
/* r = a op b, of numbers; of one operand b is not read. NULL, or why there is no result. */
TCI_FN const char *tci_expr_fold(tci_expr_op op, tc_arg a, tc_arg b, tc_arg *r);
/* The number that the n bytes spell; NULL, or why they spell none. */
TCI_FN const char *tci_expr_number(const char *text, int n, tc_arg *r);

#endif
