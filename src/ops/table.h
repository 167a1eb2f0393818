/* ops/table.h - THE op rows. From them come the enum, prototypes and macros of the public calls,
 * checks, lowering, the interpreter, gradients, tests, the fuzz list and the README's op table.
 *
 * Elementwise row: X(ID, name, arity, rule, flags, value, doc)
 *   rule   dtype of operands and result after promotion P of the operands:
 *          SAME  P -> P          FLOAT  P, integers and bool become f32 -> same
 *          COMPARE  P -> bool    LOGIC  each operand to bool -> bool
 *          NUMERIC  like SAME but bool is refused
 *   flags  C commutes, Z maps zero to zero, M monotone, - none
 *   value  nested neutral calls over A, B, C: op(...) names a prim; K(x) is the constant x in the
 *          operands' dtype. Nothing else: no operator, no literal, no ?:. The whole value is
 *          computed in the compute dtype and rounded once to the result dtype.
 * Reduce row: X(ID, name, result rule, identity, doc)
 *   rule   SAME; SUM (bool and integers -> i64, f16 and bf16 accumulate in f32); INDEX (-> i64);
 *          BOOL
 * Special rows: X(ID, name, doc): movement and the ops with their own functions; tci_shape_ID etc.
 *   are pasted from the id, so a missing one does not compile.
 * Composite rows: X(ID, name, doc): expanded into rows above by tci_expand_ID (ops/composite). */
#ifndef TCI_OPS_TABLE_H
#define TCI_OPS_TABLE_H

#define TCI_EW_OPS(X)                                                                              \
    X(NEG, neg, 1, NUMERIC, Z, NEG(A), "-a")                                                       \
    X(ABS, abs, 1, NUMERIC, Z, ABS(A), "|a|")                                                      \
    X(EXP, exp, 1, FLOAT, M, EXP(A), "e to the a")                                                 \
    X(LOG, log, 1, FLOAT, M, LOG(A), "natural logarithm")                                          \
    X(SQRT, sqrt, 1, FLOAT, M, SQRT(A), "square root")                                             \
    X(RSQRT, rsqrt, 1, FLOAT, M, DIV(K(1), SQRT(A)), "1 / sqrt(a)")                                \
    X(RECIPROCAL, reciprocal, 1, FLOAT, M, DIV(K(1), A), "1 / a")                                  \
    X(SQUARE, square, 1, SAME, Z, MUL(A, A), "a * a")                                              \
    X(SIN, sin, 1, FLOAT, Z, SIN(A), "sine of a in radians")                                       \
    X(COS, cos, 1, FLOAT, -, COS(A), "cosine of a in radians")                                     \
    X(TANH, tanh, 1, FLOAT, Z, TANH(A), "hyperbolic tangent")                                      \
    X(SIGMOID, sigmoid, 1, FLOAT, M, SIGMOID(A), "1 / (1 + exp(-a))")                              \
    X(SILU, silu, 1, FLOAT, Z, MUL(A, SIGMOID(A)), "a * sigmoid(a)")                               \
    X(ERF, erf, 1, FLOAT, Z, ERF(A), "error function")                                             \
    X(GELU, gelu, 1, FLOAT, Z, GELU(A), "a * (1 + erf(a / sqrt 2)) / 2")                           \
    X(RELU, relu, 1, NUMERIC, Z, MAX(A, K(0)), "max(a, 0), NaN stays")                             \
    X(FLOOR, floor, 1, NUMERIC, M, FLOOR(A), "largest integer not above")                          \
    X(CEIL, ceil, 1, NUMERIC, M, CEIL(A), "smallest integer not below")                            \
    X(TRUNC, trunc, 1, NUMERIC, M, TRUNC(A), "towards zero")                                       \
    X(ROUND, round, 1, NUMERIC, M, RINT(A), "nearest integer, ties to even")                       \
    X(ISNAN, isnan, 1, COMPARE, -, NE(A, A), "a is NaN")                                           \
    X(LOGICAL_NOT, logical_not, 1, LOGIC, -, NOT(A), "a == 0")                                     \
    X(ADD, add, 2, SAME, C, ADD(A, B), "a + b")                                                    \
    X(SUB, sub, 2, NUMERIC, -, SUB(A, B), "a - b")                                                 \
    X(MUL, mul, 2, SAME, C, MUL(A, B), "a * b")                                                    \
    X(DIV, div, 2, FLOAT, -, DIV(A, B), "a / b, always in floats")                                 \
    X(POW, pow, 2, NUMERIC, -, POW(A, B), "a to the b")                                            \
    X(MAXIMUM, maximum, 2, SAME, C, MAX(A, B), "the larger; NaN if either is")                     \
    X(MINIMUM, minimum, 2, SAME, C, MIN(A, B), "the smaller; NaN if either is")                    \
    X(REMAINDER, remainder, 2, NUMERIC, -, MODULO(A, B), "a - b * floor(a / b), sign of b")        \
    X(EQ, eq, 2, COMPARE, C, EQ(A, B), "a == b")                                                   \
    X(NE, ne, 2, COMPARE, C, NE(A, B), "a != b")                                                   \
    X(LT, lt, 2, COMPARE, -, LT(A, B), "a < b")                                                    \
    X(LE, le, 2, COMPARE, -, LE(A, B), "a <= b")                                                   \
    X(GT, gt, 2, COMPARE, -, LT(B, A), "a > b")                                                    \
    X(GE, ge, 2, COMPARE, -, LE(B, A), "a >= b")                                                   \
    X(LOGICAL_AND, logical_and, 2, LOGIC, C, AND(A, B), "both nonzero")                            \
    X(LOGICAL_OR, logical_or, 2, LOGIC, C, OR(A, B), "either nonzero")

#define TCI_REDUCE_OPS(X)                                                                          \
    X(SUM, sum, SUM, 0, "sum over the axes")                                                       \
    X(PROD, prod, SUM, 1, "product over the axes")                                                 \
    X(MAX, max, SAME, LOWEST, "largest over the axes; NaN if any is")                              \
    X(MIN, min, SAME, HIGHEST, "smallest over the axes; NaN if any is")                            \
    X(ANY, any, BOOL, 0, "any nonzero")                                                            \
    X(ALL, all, BOOL, 1, "all nonzero")                                                            \
    X(ARGMAX, argmax, INDEX, LOWEST, "index of the first largest (first NaN wins)")                \
    X(ARGMIN, argmin, INDEX, HIGHEST, "index of the first smallest (first NaN wins)")

/* Shapes and attributes as graph/node.h describes. */
#define TCI_SPECIAL_OPS(X)                                                                         \
    X(INPUT, input, "named placeholder, bound at run")                                             \
    X(DATA, data, "leaf with memory: borrowed, copied or an evaluated value")                      \
    X(LITERAL, literal, "0-d number given in C: a slot filled at run time")                        \
    X(CONST, const, "0-d number known to the compiler: 0, 1, -1, 2, 0.5 and fills made by tc")     \
    X(IOTA, iota, "0, 1, 2 ... along one axis, i64")                                               \
    X(WHERE, where, "c ? a : b")                                                                   \
    X(CAST, cast, "dtype conversion with tc's defined corners")                                    \
    X(RESHAPE, reshape, "same elements, row-major order, other shape")                             \
    X(PERMUTE, permute, "axes in another order")                                                   \
    X(EXPAND, expand, "axes of size 1 repeated, without a copy")                                   \
    X(SLICE, slice, "start and step per axis; negative steps walk backwards")                      \
    X(PAD, pad, "fill around, or crop where negative")                                             \
    X(CAT, cat, "joined along an axis")                                                            \
    X(WINDOW, window, "sliding windows along axes as extra axes")                                  \
    X(GATHER, gather, "x read at an index tensor along an axis")                                   \
    X(SCAN, scan, "running sum along an axis")                                                     \
    X(CONTRACT, contract, "sum of products over labelled axes (einsum of two operands)")

#define TCI_COMPOSITE_OPS(X)                                                                       \
    X(SOFTMAX, softmax, "exp(x - max) / sum along an axis")                                        \
    X(LOG_SOFTMAX, log_softmax, "x - max - log(sum(exp(x - max))) along an axis")                  \
    X(MEAN, mean, "sum / count over axes")                                                         \
    X(LAYER_NORM, layer_norm, "(x - mean) / sqrt(var + eps) * weight + bias over axes")            \
    X(CROSS_ENTROPY, cross_entropy, "mean of -log_softmax(logits)[target]")

#endif
