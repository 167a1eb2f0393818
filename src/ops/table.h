/* ops/table.h - THE op rows. From them come the enum, prototypes and macros of the public calls,
 * checks, lowering, the interpreter, gradients, tests, the fuzz list and the README's op table.
 *
 * Elementwise row: X(ID, name, arity, rule, flags, value, gradient, doc)
 *   rule   dtype of operands and result after promotion P of the operands:
 *          SAME  P -> P          FLOAT  P, integers and bool become f32 -> same
 *          COMPARE  P -> bool    LOGIC  each operand to bool -> bool
 *          NUMERIC  like SAME but bool is refused
 *   flags  C commutes, Z maps zero to zero, M monotone, - none
 *   value  nested neutral calls over A and B: the prims of ops/prim.h, and the words below; K(x) is
 *          the constant x in the operands' dtype. Nothing else: no operator, no literal, no ?:.
 *          The whole value is computed in the compute dtype and rounded once to the result dtype.
 *   gradient  what the operands take from the result's gradient G: nested calls of rows of this
 *          table and WHERE, over A, B, the result Y, G and K(x): DA(a's), DAB(a's, b's). Ties and
 *          corners as in torch. FLAT: zero everywhere. NONE: the result is no float, so nobody
 *          asks. The whole is computed in the compute dtype and rounded once.
 *   No compiler ever sees these two columns: tools/amalgamate.c makes code of them, which
 *   ops/formula.h describes.
 * Reduce row: X(ID, name, result rule, identity, gradient, doc)
 *   rule   SAME; SUM (bool and integers -> i64, f16 and bf16 accumulate in f32); INDEX (-> i64);
 *          BOOL
 *   gradient  as above, and SPREAD(t), TALLY(c), OTHERS()
 * Special rows: X(ID, name, gradient, doc): movement and the ops with their own functions
 *   gradient  OWN: tci_vjp_ID; LEAF: has no operands; NONE: asking for it is an error
 * Composite rows: X(ID, name, gradient, doc): expanded into rows above by tci_expand_ID
 *   (ops/composite).
 *   gradient  OWN: tci_vjp_ID; EXPANSION: that of the rows it expands into */
#ifndef TCI_OPS_TABLE_H
#define TCI_OPS_TABLE_H

#define TCI_EW_OPS(X)                                                                              \
    X(NEG, neg, 1, NUMERIC, Z, NEG(A), DA(NEG(G)), "-a")                                           \
    X(ABS, abs, 1, NUMERIC, Z, ABS(A),                                                             \
      DA(WHERE(LT(A, K(0)), NEG(G), WHERE(LT(K(0), A), G, K(0)))), "|a|")                          \
    X(EXP, exp, 1, FLOAT, M, EXP(A), DA(MUL(G, Y)), "e to the a")                                  \
    X(LOG, log, 1, FLOAT, M, LOG(A), DA(DIV(G, A)), "natural logarithm")                           \
    X(SQRT, sqrt, 1, FLOAT, M, SQRT(A), DA(DIV(G, MUL(K(2), Y))), "square root")                   \
    X(RSQRT, rsqrt, 1, FLOAT, M, DIV(K(1), SQRT(A)),                                               \
      DA(MUL(MUL(K(-0.5), G), MUL(Y, SQUARE(Y)))), "1 / sqrt(a)")                                  \
    X(RECIPROCAL, reciprocal, 1, FLOAT, M, DIV(K(1), A), DA(NEG(MUL(G, SQUARE(Y)))), "1 / a")      \
    X(SQUARE, square, 1, SAME, Z, MUL(A, A), DA(MUL(G, MUL(K(2), A))), "a * a")                    \
    X(SIN, sin, 1, FLOAT, Z, SIN(A), DA(MUL(G, COS(A))), "sine of a in radians")                   \
    X(COS, cos, 1, FLOAT, -, COS(A), DA(NEG(MUL(G, SIN(A)))), "cosine of a in radians")            \
    X(TANH, tanh, 1, FLOAT, Z, TANH(A), DA(MUL(G, SUB(K(1), SQUARE(Y)))), "hyperbolic tangent")    \
    X(SIGMOID, sigmoid, 1, FLOAT, M, SIGMOID(A),                                                   \
      DA(MUL(G, MUL(Y, SUB(K(1), Y)))), "1 / (1 + exp(-a))")                                       \
    X(SILU, silu, 1, FLOAT, Z, MUL(A, SIGMOID(A)),                                                 \
      DA(MUL(G, MUL(SIGMOID(A), ADD(K(1), MUL(A, SUB(K(1), SIGMOID(A))))))), "a * sigmoid(a)")     \
    X(ERF, erf, 1, FLOAT, Z, ERF(A),                                                               \
      DA(MUL(G, MUL(K(1.1283791670955126), EXP(NEG(SQUARE(A)))))), "error function")               \
    X(GELU, gelu, 1, FLOAT, Z, GELU(A),                                                            \
      DA(MUL(G, ADD(MUL(K(0.5), ADD(K(1), ERF(MUL(A, K(0.70710678118654752))))),                   \
          MUL(MUL(A, K(0.39894228040143268)), EXP(MUL(K(-0.5), SQUARE(A))))))),                    \
      "a * (1 + erf(a / sqrt 2)) / 2, -0 at -inf")                                                 \
    X(RELU, relu, 1, NUMERIC, Z, MAX(A, K(0)),                                                     \
      DA(WHERE(LE(A, K(0)), K(0), G)), "max(a, 0), NaN stays")                                     \
    X(FLOOR, floor, 1, NUMERIC, M, FLOOR(A), FLAT, "largest integer not above")                    \
    X(CEIL, ceil, 1, NUMERIC, M, CEIL(A), FLAT, "smallest integer not below")                      \
    X(TRUNC, trunc, 1, NUMERIC, M, TRUNC(A), FLAT, "towards zero")                                 \
    X(ROUND, round, 1, NUMERIC, M, RINT(A), FLAT, "nearest integer, ties to even")                 \
    X(ISNAN, isnan, 1, COMPARE, -, NOT(EQ(A, A)), NONE, "a is NaN")                                \
    X(LOGICAL_NOT, logical_not, 1, LOGIC, -, NOT(A), NONE, "a == 0")                               \
    X(ADD, add, 2, SAME, C, ADD(A, B), DAB(G, G), "a + b")                                         \
    X(SUB, sub, 2, NUMERIC, -, SUB(A, B), DAB(G, NEG(G)), "a - b")                                 \
    X(MUL, mul, 2, SAME, C, MUL(A, B), DAB(MUL(G, B), MUL(G, A)), "a * b")                         \
    X(DIV, div, 2, FLOAT, -, DIV(A, B),                                                            \
      DAB(DIV(G, B), NEG(MUL(G, DIV(DIV(A, B), B)))), "a / b, always in floats")                   \
    X(POW, pow, 2, NUMERIC, -, POW(A, B),                                                          \
      DAB(WHERE(EQ(B, K(0)), K(0),                                                                 \
                MUL(G, MUL(B, POW(A, SUB(WHERE(EQ(B, K(0)), K(1), B), K(1)))))),                   \
          WHERE(LOGICAL_AND(EQ(A, K(0)), LE(K(0), B)), K(0),                                       \
                MUL(G, MUL(Y, LOG(WHERE(LOGICAL_AND(EQ(A, K(0)), LE(K(0), B)), K(1), A)))))),      \
      "a to the b")                                                                                \
    X(MAXIMUM, maximum, 2, SAME, C, MAX(A, B),                                                     \
      DAB(WHERE(LT(A, B), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G)),                               \
          WHERE(LT(B, A), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G))),                              \
      "the larger; NaN if either is")                                                              \
    X(MINIMUM, minimum, 2, SAME, C, MIN(A, B),                                                     \
      DAB(WHERE(LT(B, A), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G)),                               \
          WHERE(LT(A, B), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G))),                              \
      "the smaller; NaN if either is")                                                             \
    X(REMAINDER, remainder, 2, NUMERIC, -, MODULO(A, B),                                           \
      DAB(G, NEG(MUL(G, FLOOR_DIVIDE(A, B)))),                                                     \
      "a - b * floor(a / b): sign of b, also of a zero; integers: a % 0 = 0")                      \
    X(FLOOR_DIVIDE, floor_divide, 2, NUMERIC, -, FLOOR_DIVIDE(A, B), FLAT,                         \
      "floor(a / b) of the exact quotient; integers stay integers, a / 0 = 0")                     \
    X(EQ, eq, 2, COMPARE, C, EQ(A, B), NONE, "a == b")                                             \
    X(NE, ne, 2, COMPARE, C, NOT(EQ(A, B)), NONE, "a != b")                                        \
    X(LT, lt, 2, COMPARE, -, LT(A, B), NONE, "a < b")                                              \
    X(LE, le, 2, COMPARE, -, LE(A, B), NONE, "a <= b")                                             \
    X(GT, gt, 2, COMPARE, -, LT(B, A), NONE, "a > b")                                              \
    X(GE, ge, 2, COMPARE, -, LE(B, A), NONE, "a >= b")                                             \
    X(LOGICAL_AND, logical_and, 2, LOGIC, C, AND(A, B), NONE, "both nonzero")                      \
    X(LOGICAL_OR, logical_or, 2, LOGIC, C, OR(A, B), NONE, "either nonzero")

#define TCI_REDUCE_OPS(X)                                                                          \
    X(SUM, sum, SUM, 0, DA(SPREAD(G)), "sum over the axes")                                        \
    X(PROD, prod, SUM, 1, DA(MUL(SPREAD(G), OTHERS())), "product over the axes")                   \
    X(MAX, max, SAME, LOWEST,                                                                      \
      DA(WHERE(EQ(A, SPREAD(Y)), SPREAD(DIV(G, TALLY(EQ(A, SPREAD(Y))))), K(0))),                  \
      "largest over the axes; NaN if any is")                                                      \
    X(MIN, min, SAME, HIGHEST,                                                                     \
      DA(WHERE(EQ(A, SPREAD(Y)), SPREAD(DIV(G, TALLY(EQ(A, SPREAD(Y))))), K(0))),                  \
      "smallest over the axes; NaN if any is")                                                     \
    X(ANY, any, BOOL, 0, NONE, "any nonzero")                                                      \
    X(ALL, all, BOOL, 1, NONE, "all nonzero")                                                      \
    X(ARGMAX, argmax, INDEX, LOWEST, NONE, "index of the first largest (first NaN wins)")          \
    X(ARGMIN, argmin, INDEX, HIGHEST, NONE, "index of the first smallest (first NaN wins)")

/* Shapes and attributes as graph/node.h describes. */
#define TCI_SPECIAL_OPS(X)                                                                         \
    X(INPUT, input, LEAF, "named placeholder, bound at run")                                       \
    X(DATA, data, LEAF, "leaf with memory: borrowed, copied or an evaluated value")                \
    X(LITERAL, literal, LEAF, "0-d number given in C: a slot filled at run time")                  \
    X(CONST, const, LEAF,                                                                          \
      "0-d number known to the compiler: 0, 1, -1, 2, 0.5 and fills made by tc")                   \
    X(IOTA, iota, LEAF, "0, 1, 2 ... along one axis, i64")                                         \
    X(WHERE, where, OWN, "c ? a : b")                                                              \
    X(CAST, cast, OWN, "dtype conversion with tc's defined corners")                               \
    X(RESHAPE, reshape, OWN, "same elements, row-major order, other shape")                        \
    X(PERMUTE, permute, OWN, "axes in another order")                                              \
    X(EXPAND, expand, OWN, "axes of size 1 repeated, without a copy")                              \
    X(SLICE, slice, OWN, "start and step per axis; negative steps walk backwards")                 \
    X(PAD, pad, OWN, "fill around, or crop where negative")                                        \
    X(CAT, cat, OWN, "joined along an axis")                                                       \
    X(WINDOW, window, OWN, "sliding windows along axes as extra axes")                             \
    X(GATHER, gather, OWN, "x read at an index tensor along an axis")                              \
    X(SCAN, scan, OWN, "running sum along an axis")                                                \
    X(CONTRACT, contract, OWN, "sum of products over labelled axes (einsum of two operands)")      \
    X(ASSIGN, assign, NONE, "a parameter takes a value when the program has run")

#define TCI_COMPOSITE_OPS(X)                                                                       \
    X(SOFTMAX, softmax, OWN, "exp(x - max) / sum along an axis")                                   \
    X(LOG_SOFTMAX, log_softmax, OWN, "x - max - log(sum(exp(x - max))) along an axis")             \
    X(MEAN, mean, EXPANSION, "sum / count over axes")                                              \
    X(LAYER_NORM, layer_norm, OWN, "(x - mean) / sqrt(var + eps) * weight + bias over axes")       \
    X(CROSS_ENTROPY, cross_entropy, OWN, "mean of -log_softmax(logits)[target]")

/* The words of the two columns that are neither a prim nor a row. X(ID, operands, where it may
 * stand: VALUE, GRADIENT, BOTH; REDUCE: gradients of reduce rows) */
#define TCI_COLUMN_WORDS(X)                                                                        \
    X(A, 0, BOTH)                /* the first operand */                                           \
    X(B, 0, BOTH)                /* the second */                                                  \
    X(Y, 0, GRADIENT)            /* the result */                                                  \
    X(G, 0, GRADIENT)            /* its gradient */                                                \
    X(MAX, 2, VALUE)             /* a where a > b or a is NaN, else b */                           \
    X(MIN, 2, VALUE)             /* a where a < b or a is NaN, else b */                           \
    X(MODULO, 2, VALUE)          /* Python's remainder: the sign of b */                           \
    X(FLOOR_DIVIDE, 2, VALUE)    /* floor of the exact a / b, of integers 0 where b is */          \
    X(SPREAD, 1, REDUCE)         /* t along the axes it was reduced by */                          \
    X(TALLY, 1, REDUCE)          /* how many are true along them */                                \
    X(OTHERS, 0, REDUCE)   /* the product of the other elements along them */

typedef enum tci_op {
#define TCI_ROW(id, ...) TCI_OP_##id,
    TCI_EW_OPS(TCI_ROW) TCI_OP_EW_END,
    TCI_OP_REDUCE_FIRST_ = TCI_OP_EW_END - 1,
    TCI_REDUCE_OPS(TCI_ROW) TCI_OP_REDUCE_END,
    TCI_OP_SPECIAL_FIRST_ = TCI_OP_REDUCE_END - 1,
    TCI_SPECIAL_OPS(TCI_ROW) TCI_OP_SPECIAL_END,
    TCI_OP_COMPOSITE_FIRST_ = TCI_OP_SPECIAL_END - 1,
    TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
        TCI_OP_COUNT
} tci_op;

#endif
