/* ops/table.h - table of all ops, one row each. From them come the enum, prototypes and macros of
 * the public calls, checks, lowering, the interpreter, gradients, tests, the fuzz list and the
 * README's op table.
 *
 * Elementwise row: X(ID, name, arity, rule, cost, value, gradient, doc)
 *   rule   dtype of operands and result after promotion P of the operands:
 *          SAME  P -> P          FLOAT  P, integers and bool become f32 -> same (by NumPy's rule
 *          other floats: tci_dtype_function)
 *          COMPARE  P -> bool    LOGIC  each operand to bool -> bool
 *          NUMERIC  like SAME but bool is refused   INTEGER  like SAME but floats are
 *          WORD  like SAME but both are
 *   cost   PLAIN an instruction or a few; EXACT so too, and the value is an operand, its negation
 *          or the next integer, so that nothing is rounded; ROOT about the cost of a division; CALL
 *          about the cost of exp
 *   value  nested calls over A, B and C in target-neutral form: the prims of ops/prim.h, and the
 *          words below; K(x) is the constant x in the operands' dtype. Nothing else: no operator,
 *          no literal, no ?:. The whole value is computed in the compute dtype and rounded once to
 *          the result dtype.
 *   gradient  what the operands take from the result's gradient G: nested calls of rows of this
 *          table and WHERE, over A, B, C, the result Y, G and K(x): DA(a's), DAB(a's, b's),
 *          DABC(a's, b's, c's). Ties and corners as in PyTorch 2.15. FLAT: zero everywhere. NONE:
 *          the result is no float, so it is never read. The whole is computed in the compute dtype
 *          and rounded once. A column is differentiated again: where the function is smooth, each
 *          branch must equal the derivative around the point, not only at it (K(0) may stand for
 *          B where B is 0 only if the function is not smooth there), and where a branch is not
 *          taken nothing may overflow.
 *   No compiler ever sees these two columns: tools/amalgamate.c compiles them to bytecode, which
 *   ops/formula_bytecode.h describes.
 * Combine row: X(ID, name, parts, element, combine): how partial results of a reduction are
 *   combined. A partial result is a tuple of parts; a reduction starts at the identity, which is
 *   the neutral element of combine.
 *   parts  P1 .. TCI_P4(dtype, identity, ...) for each part: the dtype is T, that in which the
 *          reduction accumulates, INDEX (i64) or COUNT (i32); the identity is 0, 1, LOWEST or
 *          HIGHEST of the dtype
 *   element  E(...): what an element is as a tuple, over A, the element in T, and its INDEX along
 *          the axis; PAIR: it is two factors
 *   combine  C(...): each part of two tuples combined, over A, A1, .. A3, the parts of the one that
 *          has what comes first, and B, B1, .. B3, those of the other (PAIR: the factors): prims,
 *          and the words below
 * Reduce row: X(ID, name, rule, combine, part, gradient, doc)
 *   rule   SAME; SUM (bool and integers -> i64, f16 and bf16 accumulate in f32); INDEX (-> i64);
 *          BOOL; FLOAT (integers and bool become f32; by NumPy's rule f64)
 *   combine, part  the combine row, and which part of it is the result. An empty reduction yields
 *          the identity of the first part; LOWEST and HIGHEST may be no result
 *   gradient  as above, and SPREAD(t), TALLY(c), OTHERS(), CENTRED()
 * Special rows: X(ID, name, least, most, facts, attributes, gradient, doc): movement ops and the
 *   ops with their own functions.
 *   least, most  operands; MANY: as many as are given
 *   facts     of tci_fact in ops/op_info.h, which makes one info row of each op
 *   attributes  which of the lists TCI_ATTRS_... below
 *   gradient  OWN: tci_vjp_ID; LEAF: has no operands; NONE: asking for it is an error
 * Composite rows: X(ID, name, least, most, attributes, gradient, doc): expanded into rows above by
 *   tci_expand_ID (ops/composite); else as special rows.
 *   gradient  OWN: tci_vjp_ID; EXPANSION: that of the rows it expands into; FLAT: zero
 * Built row: X(ID, name, arity, kind, operands, formula, doc)
 *   kind      SAME: the promoted dtype of the operands; FLOAT: so too, integers and bool become f32
 *             (NumPy's rule: tci_dtype_function; of LOSS f64); LOSS: FLOAT, after the operands the
 *             call takes the reduction of the result, and TCI_GIVEN tensors have one shape;
 *             LOSS_WIDE: as LOSS, but TCI_GIVEN tensors broadcast, as in PyTorch
 *   operands  TCI_GIVEN(name), and TCI_ELSE(name, number) where TC_NONE stands for that number
 *   formula   nested calls of rows and WHERE over A, B, C, D, E, the operands in their order, and
 *             K(x), STOP and AS. Shapes broadcast. All is computed in the compute dtype and rounded
 *             once; the gradient is that of the nodes, so where a branch is not taken nothing may
 *             overflow. Two rows follow PyTorch 2.15 where that differs from the derivative of the
 *             value: the gradient of BINARY_CROSS_ENTROPY is (A - B) / max(A (1 - A), 1e-12), its
 *             second derivative has (A + 1e-12)^2 (1 - A + 1e-12)^2 below, so next to 0 and 1 the
 *             two are the terms of a Taylor series around A; GAUSSIAN_NLL_LOSS has the gradient of
 *             the clamped variance for the variance */
#ifndef TCI_OPS_TABLE_H
#define TCI_OPS_TABLE_H

#define TCI_EW_OPS(X)                                                                              \
    X(NEG, neg, 1, NUMERIC, EXACT, NEG(A), DA(NEG(G)), "-a")                                       \
    X(ABS, abs, 1, NUMERIC, EXACT, ABS(A),                                                         \
      DA(WHERE(LT(A, K(0)), NEG(G), WHERE(LT(K(0), A), G, K(0)))), "|a|")                          \
    X(EXP, exp, 1, FLOAT, CALL, EXP(A), DA(MUL(G, Y)), "e to the a")                               \
    X(LOG, log, 1, FLOAT, CALL, LOG(A), DA(DIV(G, A)), "natural logarithm")                        \
    X(SQRT, sqrt, 1, FLOAT, ROOT, SQRT(A), DA(DIV(G, MUL(K(2), Y))), "square root")                \
    X(RSQRT, rsqrt, 1, FLOAT, ROOT, DIV(K(1), SQRT(A)),                                            \
      DA(MUL(MUL(K(-0.5), G), MUL(Y, SQUARE(Y)))), "1 / sqrt(a)")                                  \
    X(RECIPROCAL, reciprocal, 1, FLOAT, ROOT, DIV(K(1), A), DA(NEG(MUL(G, SQUARE(Y)))), "1 / a")   \
    X(SQUARE, square, 1, SAME, PLAIN, MUL(A, A), DA(MUL(G, MUL(K(2), A))), "a * a")                \
    X(SIN, sin, 1, FLOAT, CALL, SIN(A), DA(MUL(G, COS(A))), "sine of a in radians")                \
    X(COS, cos, 1, FLOAT, CALL, COS(A), DA(NEG(MUL(G, SIN(A)))), "cosine of a in radians")         \
    X(TANH, tanh, 1, FLOAT, CALL, TANH(A), DA(MUL(G, SUB(K(1), SQUARE(Y)))), "hyperbolic tangent") \
    X(SIGMOID, sigmoid, 1, FLOAT, CALL, SIGMOID(A),                                                \
      DA(MUL(G, MUL(Y, SUB(K(1), Y)))), "1 / (1 + exp(-a))")                                       \
    X(SILU, silu, 1, FLOAT, CALL, MUL(A, SIGMOID(A)),                                              \
      DA(MUL(G, MUL(SIGMOID(A), ADD(K(1), MUL(A, SUB(K(1), SIGMOID(A))))))), "a * sigmoid(a)")     \
    X(ERF, erf, 1, FLOAT, CALL, ERF(A),                                                            \
      DA(MUL(G, MUL(K(1.1283791670955126), EXP(NEG(SQUARE(A)))))), "error function")               \
    X(GELU, gelu, 1, FLOAT, CALL, GELU(A), DA(MUL(G, GELU_SLOPE(A))),                              \
      "a * (1 + erf(a / sqrt 2)) / 2, -0 at -inf (arXiv 1606.08415)")                              \
    X(RELU, relu, 1, NUMERIC, EXACT, MAX(A, K(0)),                                                 \
      DA(WHERE(LE(A, K(0)), K(0), G)), "max(a, 0), NaN stays")                                     \
    X(FLOOR, floor, 1, NUMERIC, EXACT, FLOOR(A), FLAT, "largest integer not above")                \
    X(CEIL, ceil, 1, NUMERIC, EXACT, CEIL(A), FLAT, "smallest integer not below")                  \
    X(TRUNC, trunc, 1, NUMERIC, EXACT, TRUNC(A), FLAT, "towards zero")                             \
    X(ROUND, round, 1, NUMERIC, EXACT, RINT(A), FLAT, "nearest integer, ties to even")             \
    X(TAN, tan, 1, FLOAT, CALL, TAN(A), DA(MUL(G, ADD(K(1), SQUARE(Y)))),                          \
      "tangent of a in radians")                                                                   \
    X(ASIN, asin, 1, FLOAT, CALL, ASIN(A),                                                         \
      DA(MUL(G, RSQRT(SUB(K(1), SQUARE(A))))), "angle in [-pi/2, pi/2] whose sine is a")           \
    X(ACOS, acos, 1, FLOAT, CALL, ACOS(A),                                                         \
      DA(NEG(MUL(G, RSQRT(SUB(K(1), SQUARE(A)))))), "angle in [0, pi] whose cosine is a")          \
    X(ATAN, atan, 1, FLOAT, CALL, ATAN2(A, K(1)), DA(DIV(G, ADD(K(1), SQUARE(A)))),                \
      "angle in [-pi/2, pi/2] whose tangent is a")                                                 \
    X(SINH, sinh, 1, FLOAT, CALL, SINH(A), DA(MUL(G, COSH(A))), "hyperbolic sine")                 \
    X(COSH, cosh, 1, FLOAT, CALL, COSH(A), DA(MUL(G, SINH(A))), "hyperbolic cosine")               \
    X(ASINH, asinh, 1, FLOAT, CALL,                                                                \
      COPYSIGN(SELECT(LT(K(1e10), ABS(A)), ADD(LOG(ABS(A)), K(0.6931471805599453)),                \
                      LOG1P(ADD(ABS(A), DIV(MUL(A, A), ADD(K(1), SQRT(FMA(A, A, K(1)))))))), A),   \
      DA(WHERE(LT(ABS(A), K(1e10)),                                                                \
               MUL(G, RSQRT(ADD(SQUARE(WHERE(LT(ABS(A), K(1e10)), A, K(0))), K(1)))),              \
               DIV(G, ABS(A)))), "inverse of sinh")                                                \
    X(ACOSH, acosh, 1, FLOAT, CALL,                                                                \
      SELECT(LT(A, K(1)), SQRT(SUB(A, K(1))),                                                      \
             SELECT(LT(K(1e10), A), ADD(LOG(A), K(0.6931471805599453)),                            \
                    LOG1P(ADD(SUB(A, K(1)), SQRT(FMA(SUB(A, K(1)), SUB(A, K(1)),                   \
                                                     MUL(K(2), SUB(A, K(1))))))))),                \
      DA(WHERE(LT(A, K(1e10)),                                                                     \
               MUL(G, RSQRT(SUB(SQUARE(WHERE(LT(A, K(1e10)), A, K(2))), K(1)))), DIV(G, A))),      \
      "inverse of cosh, at least 0")                                                               \
    X(ATANH, atanh, 1, FLOAT, CALL,                                                                \
      COPYSIGN(MUL(K(0.5), LOG1P(DIV(ADD(ABS(A), ABS(A)), SUB(K(1), ABS(A))))), A),                \
      DA(DIV(G, SUB(K(1), SQUARE(A)))), "inverse of tanh")                                         \
    X(EXPM1, expm1, 1, FLOAT, CALL, EXPM1(A), DA(MUL(G, EXP(A))), "e to the a, less 1")            \
    X(EXP2, exp2, 1, FLOAT, CALL, EXP2(A), DA(MUL(G, MUL(Y, K(0.6931471805599453)))),              \
      "2 to the a")                                                                                \
    X(LOG1P, log1p, 1, FLOAT, CALL, LOG1P(A), DA(DIV(G, ADD(A, K(1)))), "log(1 + a)")              \
    X(LOG1PEXP, log1pexp, 1, FLOAT, CALL,                                                          \
      ADD(MAX(A, K(0)), SELECT(EQ(A, K(0)), K(0.6931471805599453), LOG1P(EXP(NEG(ABS(A)))))),      \
      DA(MUL(G, SIGMOID(A))), "log(1 + exp(a))")                                                   \
    X(LOG2, log2, 1, FLOAT, CALL, LOG2(A), DA(DIV(G, MUL(A, K(0.6931471805599453)))),              \
      "logarithm to base 2")                                                                       \
    X(LOG10, log10, 1, FLOAT, CALL, LOG10(A), DA(DIV(G, MUL(A, K(2.302585092994046)))),            \
      "logarithm to base 10")                                                                      \
    X(ERFC, erfc, 1, FLOAT, CALL, ERFC(A),                                                         \
      DA(MUL(G, MUL(K(-1.1283791670955126), EXP(NEG(SQUARE(A)))))), "1 - erf(a)")                  \
    X(ERFINV, erfinv, 1, FLOAT, CALL, ERFINV(A),                                                   \
      DA(MUL(G, MUL(K(0.88622692545275801), EXP(SQUARE(Y))))), "inverse of erf")                   \
    X(LGAMMA, lgamma, 1, FLOAT, CALL, LGAMMA(A), DA(MUL(G, DIGAMMA(A))),                           \
      "log of the absolute gamma function")                                                        \
    X(DIGAMMA, digamma, 1, FLOAT, CALL, DIGAMMA(A), DA(MUL(G, TRIGAMMA(A))),                       \
      "derivative of lgamma")                                                                      \
    X(TRIGAMMA, trigamma, 1, FLOAT, CALL, TRIGAMMA(A), DA(MUL(G, TETRAGAMMA(A))),                  \
      "derivative of digamma")                                                                     \
    X(SINC, sinc, 1, FLOAT, CALL, SINC(A), DA(MUL(G, SINC_SLOPE(A))),                              \
      "sin(pi a) / (pi a), 1 at 0")                                                                \
    X(SIGN, sign, 1, SAME, EXACT,                                                                  \
      SELECT(LT(K(0), A), K(1), SELECT(LT(A, K(0)), K(-1), K(0))), FLAT, "-1, 0 or 1; 0 of NaN")   \
    X(SIGNBIT, signbit, 1, COMPARE, PLAIN, MINUS(A), NONE,                                         \
      "a < 0, or a is -0; of NaN either")                                                          \
    X(FRAC, frac, 1, NUMERIC, PLAIN, SUB(A, TRUNC(A)), DA(G), "a - trunc(a)")                      \
    X(ISINF, isinf, 1, COMPARE, PLAIN, AND(EQ(A, A), NOT(EQ(SUB(A, A), K(0)))), NONE,              \
      "a is an infinity")                                                                          \
    X(ISFINITE, isfinite, 1, COMPARE, PLAIN, EQ(SUB(A, A), K(0)), NONE,                            \
      "a is neither an infinity nor NaN")                                                          \
    X(ISNAN, isnan, 1, COMPARE, PLAIN, NOT(EQ(A, A)), NONE, "a is NaN")                            \
    X(LOGICAL_NOT, logical_not, 1, LOGIC, PLAIN, NOT(A), NONE, "a == 0")                           \
    X(ADD, add, 2, SAME, PLAIN, ADD(A, B), DAB(G, G), "a + b")                                     \
    X(SUB, sub, 2, NUMERIC, PLAIN, SUB(A, B), DAB(G, NEG(G)), "a - b")                             \
    X(MUL, mul, 2, SAME, PLAIN, MUL(A, B), DAB(MUL(G, B), MUL(G, A)), "a * b")                     \
    X(DIV, div, 2, FLOAT, ROOT, DIV(A, B),                                                         \
      DAB(DIV(G, B), NEG(MUL(G, DIV(DIV(A, B), B)))), "a / b, always in floats")                   \
    X(POW, pow, 2, NUMERIC, CALL, POW(A, B),                                                       \
      DAB(WHERE(LOGICAL_AND(EQ(B, K(0)), LOGICAL_NOT(ISFINITE(RECIPROCAL(A)))), K(0),              \
                MUL(G, MUL(B, POW(A, SUB(WHERE(LOGICAL_AND(EQ(B, K(0)),                            \
                                                           LOGICAL_NOT(ISFINITE(RECIPROCAL(A)))),  \
                                               K(1), B), K(1)))))),                                \
          WHERE(LOGICAL_AND(EQ(A, K(0)), LE(K(0), B)), K(0),                                       \
                MUL(G, MUL(Y, LOG(WHERE(LOGICAL_AND(EQ(A, K(0)), LE(K(0), B)), K(1), A)))))),      \
      "a to the b; of integers, a negative b: truncated, and 0 of 0")                              \
    X(FMA, fma, 3, NUMERIC, PLAIN, FMA(A, B, C), DABC(MUL(G, B), MUL(G, A), G),                    \
      "a * b + c; of f32 and f64 rounded once")                                                    \
    X(MAXIMUM, maximum, 2, SAME, EXACT, MAX(A, B),                                                 \
      DAB(WHERE(LT(A, B), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G)),                               \
          WHERE(LT(B, A), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G))),                              \
      "the larger; NaN if either is")                                                              \
    X(MINIMUM, minimum, 2, SAME, EXACT, MIN(A, B),                                                 \
      DAB(WHERE(LT(B, A), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G)),                               \
          WHERE(LT(A, B), K(0), WHERE(EQ(A, B), MUL(K(0.5), G), G))),                              \
      "the smaller; NaN if either is")                                                             \
    X(REMAINDER, remainder, 2, NUMERIC, CALL, MODULO(A, B),                                        \
      DAB(G, NEG(MUL(G, FLOOR_DIVIDE(A, B)))),                                                     \
      "a - b * floor(a / b): sign of b, also of a zero; integers: a % 0 = 0")                      \
    X(FLOOR_DIVIDE, floor_divide, 2, NUMERIC, CALL, FLOOR_DIVIDE(A, B), FLAT,                      \
      "floor(a / b) of the exact quotient; integers stay integers, a / 0 = 0")                     \
    X(FMAX, fmax, 2, SAME, EXACT, SELECT(OR(LE(B, A), NOT(EQ(B, B))), A, B),                       \
      DAB(WHERE(EQ(A, B), MUL(K(0.5), G), WHERE(LOGICAL_OR(LT(B, A), ISNAN(B)), G, K(0))),         \
          WHERE(EQ(A, B), MUL(K(0.5), G), WHERE(LOGICAL_OR(LT(B, A), ISNAN(B)), K(0), G))),        \
      "the larger; the other where one is NaN")                                                    \
    X(FMIN, fmin, 2, SAME, EXACT, SELECT(OR(LE(A, B), NOT(EQ(B, B))), A, B),                       \
      DAB(WHERE(EQ(A, B), MUL(K(0.5), G), WHERE(LOGICAL_OR(LT(A, B), ISNAN(B)), G, K(0))),         \
          WHERE(EQ(A, B), MUL(K(0.5), G), WHERE(LOGICAL_OR(LT(A, B), ISNAN(B)), K(0), G))),        \
      "the smaller; the other where one is NaN")                                                   \
    X(FMOD, fmod, 2, NUMERIC, CALL, REM(A, B), DAB(G, NEG(MUL(G, TRUNC(DIV(A, B))))),              \
      "a - b * trunc(a / b), exactly: sign of a; integers: 0 where b is")                          \
    X(ATAN2, atan2, 2, FLOAT, CALL, ATAN2(A, B),                                                   \
      DAB(MUL(G, DIV(WHERE(EQ(ADD(SQUARE(A), SQUARE(B)), K(0)), K(0), B),                          \
                     WHERE(EQ(ADD(SQUARE(A), SQUARE(B)), K(0)), K(1),                              \
                           ADD(SQUARE(A), SQUARE(B))))),                                           \
          NEG(MUL(G, DIV(WHERE(EQ(ADD(SQUARE(A), SQUARE(B)), K(0)), K(0), A),                      \
                         WHERE(EQ(ADD(SQUARE(A), SQUARE(B)), K(0)), K(1),                          \
                               ADD(SQUARE(A), SQUARE(B))))))),                                     \
      "angle in [-pi, pi] of the point (b, a)")                                                    \
    X(HYPOT, hypot, 2, FLOAT, CALL,                                                                \
      SELECT(OR(EQ(ABS(A), DIV(K(1), K(0))), EQ(ABS(B), DIV(K(1), K(0)))), DIV(K(1), K(0)),        \
             SELECT(EQ(MAX(ABS(A), ABS(B)), K(0)), K(0),                                           \
                    MUL(MAX(ABS(A), ABS(B)),                                                       \
                        SQRT(FMA(DIV(MIN(ABS(A), ABS(B)), MAX(ABS(A), ABS(B))),                    \
                                 DIV(MIN(ABS(A), ABS(B)), MAX(ABS(A), ABS(B))), K(1)))))),         \
      DAB(MUL(G, DIV(A, Y)), MUL(G, DIV(B, Y))), "sqrt(a * a + b * b)")                            \
    X(COPYSIGN, copysign, 2, FLOAT, PLAIN, COPYSIGN(A, B),                                         \
      DAB(WHERE(EQ(A, K(0)), K(0), WHERE(EQ(A, Y), G, NEG(G))), K(0)),                             \
      "|a| with the sign of b, either of NaN")                                                     \
    X(HEAVISIDE, heaviside, 2, SAME, EXACT,                                                        \
      SELECT(EQ(A, K(0)), B, SELECT(LT(K(0), A), K(1), K(0))),                                     \
      DAB(K(0), WHERE(EQ(A, K(0)), G, K(0))), "0 below 0, b at 0, 1 above")                        \
    X(LDEXP, ldexp, 2, FLOAT, CALL,                                                                \
      SELECT(EQ(A, K(0)), A,                                                                       \
        MUL(MUL(MUL(                                                                               \
          SELECT(EQ(A, ADD(A, A)), A,                                                              \
                 FMA(A, EXPM1(MUL(K(0.6931471805599453), SUB(MIN(MAX(B, K(-3e3)), K(3e3)),         \
                                                    RINT(MIN(MAX(B, K(-3e3)), K(3e3)))))), A)),    \
          EXP2(FLOOR(MUL(K(0.3), RINT(MIN(MAX(B, K(-3e3)), K(3e3))))))),                           \
          EXP2(FLOOR(MUL(K(0.3), RINT(MIN(MAX(B, K(-3e3)), K(3e3))))))),                           \
          EXP2(SUB(RINT(MIN(MAX(B, K(-3e3)), K(3e3))),                                             \
                   MUL(K(2), FLOOR(MUL(K(0.3), RINT(MIN(MAX(B, K(-3e3)), K(3e3)))))))))),          \
      DAB(MUL(G, EXP2(B)), MUL(G, MUL(Y, K(0.6931471805599453)))), "a * 2 to the b; 0 where a is") \
    X(LOGADDEXP, logaddexp, 2, FLOAT, CALL,                                                        \
      SELECT(LT(ABS(ADD(MAX(A, B), SELECT(EQ(A, B), K(0.6931471805599453),                         \
        LOG1P(EXP(NEG(ABS(SUB(A, B)))))))), MUL(K(0.25), SELECT(EQ(A, B),                          \
        K(0.6931471805599453), LOG1P(EXP(NEG(ABS(SUB(A, B)))))))), ADD(ADD(MAX(A, B),              \
        SELECT(EQ(A, B), K(0.6931471805599453), LOG1P(EXP(NEG(ABS(SUB(A, B))))))),                 \
        ADD(LOG_LOW(ABS(SUB(A, B)), SELECT(LT(ABS(ADD(MAX(A, B), SELECT(EQ(A, B),                  \
        K(0.6931471805599453), LOG1P(EXP(NEG(ABS(SUB(A, B)))))))), MUL(K(0.25),                    \
        SELECT(EQ(A, B), K(0.6931471805599453), LOG1P(EXP(NEG(ABS(SUB(A, B)))))))),                \
        SELECT(EQ(A, B), K(0.6931471805599453), LOG1P(EXP(NEG(ABS(SUB(A, B)))))), K(0))),          \
        MUL(COPYSIGN(EXPM1(NEG(SELECT(EQ(A, B), K(0.6931471805599453),                             \
        LOG1P(EXP(NEG(ABS(SUB(A, B)))))))), NEG(SUB(A, B))), SUB(SUB(A, SUB(SUB(A, B),             \
        SUB(SUB(A, B), A))), ADD(B, SUB(SUB(A, B), A)))))), ADD(MAX(A, B), SELECT(EQ(A,            \
        B), K(0.6931471805599453), LOG1P(EXP(NEG(ABS(SUB(A, B)))))))),                             \
      DAB(MUL(G, SIGMOID(SUB(WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), A),                      \
                             WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), B)))),                   \
          MUL(G, SIGMOID(SUB(WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), B),                      \
                             WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), A))))),                  \
      "log(exp(a) + exp(b))")                                                                      \
    X(LOGADDEXP2, logaddexp2, 2, FLOAT, CALL,                                                      \
      SELECT(LT(ABS(ADD(MAX(A, B), SELECT(EQ(A, B), K(1), MUL(K(1.4426950408889634),               \
        LOG1P(EXP2(NEG(ABS(SUB(A, B))))))))), MUL(K(0.25), SELECT(EQ(A, B), K(1),                  \
        MUL(K(1.4426950408889634), LOG1P(EXP2(NEG(ABS(SUB(A, B))))))))), ADD(ADD(MAX(A,            \
        B), SELECT(EQ(A, B), K(1), MUL(K(1.4426950408889634), LOG1P(EXP2(NEG(ABS(SUB(A,            \
        B)))))))), ADD(LOG2_LOW(ABS(SUB(A, B)), SELECT(LT(ABS(ADD(MAX(A, B), SELECT(EQ(A,          \
        B), K(1), MUL(K(1.4426950408889634), LOG1P(EXP2(NEG(ABS(SUB(A, B))))))))),                 \
        MUL(K(0.25), SELECT(EQ(A, B), K(1), MUL(K(1.4426950408889634),                             \
        LOG1P(EXP2(NEG(ABS(SUB(A, B))))))))), SELECT(EQ(A, B), K(1),                               \
        MUL(K(1.4426950408889634), LOG1P(EXP2(NEG(ABS(SUB(A, B))))))), K(0))),                     \
        MUL(COPYSIGN(EXPM1(MUL(K(-0.6931471805599453), SELECT(EQ(A, B), K(1),                      \
        MUL(K(1.4426950408889634), LOG1P(EXP2(NEG(ABS(SUB(A, B))))))))), NEG(SUB(A, B))),          \
        SUB(SUB(A, SUB(SUB(A, B), SUB(SUB(A, B), A))), ADD(B, SUB(SUB(A, B), A)))))),              \
        ADD(MAX(A, B), SELECT(EQ(A, B), K(1), MUL(K(1.4426950408889634),                           \
        LOG1P(EXP2(NEG(ABS(SUB(A, B))))))))),                                                      \
      DAB(DIV(G, ADD(K(1), EXP2(SUB(WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), B),               \
                                    WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), A))))),           \
          DIV(G, ADD(K(1), EXP2(SUB(WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), A),               \
                                    WHERE(LOGICAL_AND(EQ(A, B), ISINF(A)), K(0), B)))))),          \
      "log2(exp2(a) + exp2(b))")                                                                   \
    X(XLOGY, xlogy, 2, FLOAT, CALL,                                                                \
      SELECT(AND(EQ(A, K(0)), EQ(B, B)), K(0), MUL(A, LOG(B))),                                    \
      DAB(WHERE(LOGICAL_AND(EQ(A, K(0)), LE(B, K(0))), K(0),                                       \
                XLOGY(G, WHERE(LOGICAL_AND(EQ(A, K(0)), LE(B, K(0))), K(1), B))),                  \
          MUL(G, DIV(A, B))),                                                                      \
      "a * log(b), 0 where a is")                                                                  \
    X(LOGICAL_XOR, logical_xor, 2, LOGIC, PLAIN, XOR(A, B), NONE, "one is nonzero, the other not") \
    X(GCD, gcd, 2, WORD, CALL, GCD(A, B), NONE, "greatest common divisor, at least 0")             \
    X(LCM, lcm, 2, WORD, CALL, ABS(MUL(DIV(A, GCD(A, B)), B)), NONE,                               \
      "least common multiple, at least 0")                                                         \
    X(EQ, eq, 2, COMPARE, PLAIN, EQ(A, B), NONE, "a == b")                                         \
    X(NE, ne, 2, COMPARE, PLAIN, NOT(EQ(A, B)), NONE, "a != b")                                    \
    X(LT, lt, 2, COMPARE, PLAIN, LT(A, B), NONE, "a < b")                                          \
    X(LE, le, 2, COMPARE, PLAIN, LE(A, B), NONE, "a <= b")                                         \
    X(GT, gt, 2, COMPARE, PLAIN, LT(B, A), NONE, "a > b")                                          \
    X(GE, ge, 2, COMPARE, PLAIN, LE(B, A), NONE, "a >= b")                                         \
    X(LOGICAL_AND, logical_and, 2, LOGIC, PLAIN, AND(A, B), NONE, "both nonzero")                  \
    X(LOGICAL_OR, logical_or, 2, LOGIC, PLAIN, OR(A, B), NONE, "either nonzero")                   \
    X(BITWISE_NOT, bitwise_not, 1, INTEGER, PLAIN, NOT(A), NONE, "~a")                             \
    X(BITWISE_AND, bitwise_and, 2, INTEGER, PLAIN, AND(A, B), NONE, "a & b")                       \
    X(BITWISE_OR, bitwise_or, 2, INTEGER, PLAIN, OR(A, B), NONE, "a | b")                          \
    X(BITWISE_XOR, bitwise_xor, 2, INTEGER, PLAIN, XOR(A, B), NONE, "a ^ b")                       \
    X(BITWISE_LEFT_SHIFT, bitwise_left_shift, 2, WORD, PLAIN, SHL(A, B), NONE,                     \
      "a << b; 0 where b is negative or no less than the width")                                   \
    X(BITWISE_RIGHT_SHIFT, bitwise_right_shift, 2, WORD, PLAIN, SHR(A, B), NONE,                   \
      "a >> b; 0, of a negative a -1, where b is negative or no less than the width")              \
    X(MUL_HIGH, mul_high, 2, WORD, PLAIN, MULHI(A, B), NONE,                                       \
      "the high half of the exact product a * b")

/* DEVSQ: count, first element, how far the mean is from that, and squared deviations of the
 * elements so far, joined as Chan, Golub and LeVeque do (Updating formulae and a pairwise algorithm
 * for computing sample variances, 1979). A mean that is far from 0 would round at every step by
 * more than the deviations are: its distance from an element is no larger than they are.
 * ONLINE: the largest element m so far and the sum of exp(a - m), as Milakov and Gimelshein have it
 * (Online normalizer calculation for softmax, 2018): the sum of the tuple with the smaller m is
 * scaled, the other is taken as it is. What that makes 0 is 0 whatever the sum was: that of -inf
 * alone is NaN, as exp(a - m) is then, until something larger is joined to it. */
#define TCI_COMBINES(X)                                                                            \
    X(SUM, sum, TCI_P1(T, 0), E(A), C(ADD(A, B)))                                                  \
    X(PROD, prod, TCI_P1(T, 1), E(A), C(MUL(A, B)))                                                \
    X(MAX, max, TCI_P1(T, LOWEST), E(A), C(MAX(A, B)))                                             \
    X(MIN, min, TCI_P1(T, HIGHEST), E(A), C(MIN(A, B)))                                            \
    X(ANY, any, TCI_P1(T, 0), E(A), C(OR(A, B)))                                                   \
    X(ALL, all, TCI_P1(T, 1), E(A), C(AND(A, B)))                                                  \
    X(ARGMAX, argmax, TCI_P2(T, LOWEST, INDEX, HIGHEST), E(A, INDEX),                              \
      C(SELECT(OR(ABOVE(B, A), AND(LEVEL(B, A), LT(B1, A1))), B, A),                               \
        SELECT(OR(ABOVE(B, A), AND(LEVEL(B, A), LT(B1, A1))), B1, A1)))                            \
    X(ARGMIN, argmin, TCI_P2(T, HIGHEST, INDEX, HIGHEST), E(A, INDEX),                             \
      C(SELECT(OR(BELOW(B, A), AND(LEVEL(B, A), LT(B1, A1))), B, A),                               \
        SELECT(OR(BELOW(B, A), AND(LEVEL(B, A), LT(B1, A1))), B1, A1)))                            \
    X(DEVSQ, devsq, TCI_P4(COUNT, 0, T, 0, T, 0, T, 0), E(K(1), A, K(0), SUB(A, A)),               \
      C(ADD(A, B), SELECT(EQ(A, K(0)), B1, A1),                                                    \
        SELECT(EQ(A, K(0)), B2,                                                                    \
               SELECT(EQ(B, K(0)), A2,                                                             \
                      ADD(A2, MUL(SUB(SUB(B1, A1), SUB(A2, B2)), DIV(T(B), T(ADD(A, B))))))),      \
        SELECT(EQ(A, K(0)), B3,                                                                    \
               SELECT(EQ(B, K(0)), A3,                                                             \
                      ADD(ADD(A3, B3), MUL(MUL(SUB(SUB(B1, A1), SUB(A2, B2)),                      \
                                               SUB(SUB(B1, A1), SUB(A2, B2))),                     \
                                           MUL(T(A), DIV(T(B), T(ADD(A, B)))))))))                 \
    )                                                                                              \
    X(ONLINE, online, TCI_P2(T, LOWEST, T, 0), E(A, ADD(K(1), SUB(A, A))),                         \
      C(MAX(A, B),                                                                                 \
        ADD(SELECT(LT(A, B), B1, A1),                                                              \
            SELECT(EQ(A, B), B1,                                                                   \
                   SELECT(EQ(EXPN(NEG(ABS(SUB(A, B)))), K(0)), K(0),                               \
                          MUL(EXPN(NEG(ABS(SUB(A, B)))), SELECT(LT(A, B), A1, B1)))))))            \
    X(DOT, dot, TCI_P1(T, 0), PAIR, C(FMA(B, B1, A)))

#define TCI_REDUCE_OPS(X)                                                                          \
    X(SUM, sum, SUM, SUM, 0, DA(SPREAD(G)), "sum over the axes")                                   \
    X(PROD, prod, SUM, PROD, 0, DA(MUL(SPREAD(G), OTHERS())), "product over the axes")             \
    X(MAX, max, SAME, MAX, 0,                                                                      \
      DA(WHERE(EQ(A, SPREAD(Y)), SPREAD(DIV(G, TALLY(EQ(A, SPREAD(Y))))),                          \
               SPREAD(WHERE(ISNAN(Y), Y, K(0))))),                                                 \
      "largest over the axes; NaN if any is")                                                      \
    X(MIN, min, SAME, MIN, 0,                                                                      \
      DA(WHERE(EQ(A, SPREAD(Y)), SPREAD(DIV(G, TALLY(EQ(A, SPREAD(Y))))),                          \
               SPREAD(WHERE(ISNAN(Y), Y, K(0))))),                                                 \
      "smallest over the axes; NaN if any is")                                                     \
    X(ANY, any, BOOL, ANY, 0, NONE, "any nonzero")                                                 \
    X(ALL, all, BOOL, ALL, 0, NONE, "all nonzero")                                                 \
    X(DEVSQ, devsq, FLOAT, DEVSQ, 3, DA(MUL(SPREAD(G), MUL(K(2), CENTRED()))),                     \
      "sum of squared differences from the mean")                                                  \
    X(ARGMAX, argmax, INDEX, ARGMAX, 1, NONE, "index of the first largest (first NaN wins)")       \
    X(ARGMIN, argmin, INDEX, ARGMIN, 1, NONE, "index of the first smallest (first NaN wins)")

/* Facts and attributes as described above; what the attributes mean is in graph/node.h. */
#define TCI_SPECIAL_OPS(X)                                                                         \
    X(INPUT, input, 0, 0, TCI_IS_LEAF | TCI_IS_MEMORY | TCI_IS_UNIQUE | TCI_IS_QUIET, NONE, LEAF,  \
      "named placeholder, bound at run")                                                           \
    X(DATA, data, 0, 0, TCI_IS_LEAF | TCI_IS_MEMORY | TCI_IS_UNIQUE | TCI_IS_QUIET, NONE, LEAF,    \
      "leaf with memory: borrowed, copied or an evaluated value")                                  \
    X(LITERAL, literal, 0, 0, TCI_IS_LEAF | TCI_IS_NUMBER | TCI_IS_UNIQUE | TCI_IS_QUIET, NONE,    \
      LEAF, "0-d number given in C: a slot filled at run time")                                    \
    X(CONST, const, 0, 0, TCI_IS_LEAF | TCI_IS_NUMBER | TCI_IS_QUIET, NONE, LEAF,                  \
      "0-d number known to the compiler: 0, 1, -1, 2, 0.5 and fills made by tc")                   \
    X(IOTA, iota, 0, 0, TCI_IS_LEAF, NONE, LEAF, "0, 1, 2 ... along one axis, i64")                \
    X(RANDOM, random, 2, 2, TCI_IS_STORABLE | TCI_IS_EXACT | TCI_IS_DRAWN, NONE, NONE,             \
      "random bits: a function of key, stream and index")                                          \
    X(WHERE, where, 3, 3, TCI_IS_POINTWISE | TCI_IS_STORABLE | TCI_IS_EXACT, NONE, OWN,            \
      "c ? a : b")                                                                                 \
    X(CAST, cast, 1, 1, TCI_IS_POINTWISE | TCI_IS_STORABLE, NONE, OWN,                             \
      "dtype conversion with tc's defined corners")                                                \
    X(BITCAST, bitcast, 1, 1, TCI_IS_POINTWISE | TCI_IS_STORABLE | TCI_IS_EXACT, NONE, NONE,       \
      "the same bits as another dtype of that size")                                               \
    X(RESHAPE, reshape, 1, 1, TCI_IS_VIEW | TCI_IS_EXACT | TCI_IS_QUIET, NONE, OWN,                \
      "same elements, row-major order, other shape")                                               \
    X(PERMUTE, permute, 1, 1, TCI_IS_VIEW | TCI_IS_EXACT, ORDER, OWN, "axes in another order")     \
    X(EXPAND, expand, 1, 1, TCI_IS_VIEW | TCI_IS_EXACT | TCI_IS_QUIET, NONE, OWN,                  \
      "axes of size 1 repeated, without a copy")                                                   \
    X(SLICE, slice, 1, 1, TCI_IS_VIEW | TCI_IS_EXACT | TCI_IS_SHIFT, SLICE, OWN,                   \
      "start and step per axis; negative steps walk backwards")                                    \
    X(PAD, pad, 2, 2, TCI_IS_EXACT | TCI_IS_SHIFT, PAD, OWN,                                       \
      "fill around, or crop where negative")                                                       \
    X(CAT, cat, 1, MANY, TCI_IS_STORABLE | TCI_IS_EXACT, AXIS, OWN, "joined along an axis")        \
    X(WINDOW, window, 1, 1, TCI_IS_VIEW | TCI_IS_EXACT | TCI_IS_SHIFT, WINDOW, OWN,                \
      "sliding windows along axes as extra axes")                                                  \
    X(GATHER, gather, 2, 2, TCI_IS_STORABLE | TCI_IS_EXACT | TCI_IS_SHIFT, AXIS, OWN,              \
      "x read at an index tensor along an axis")                                                   \
    X(SCAN, scan, 1, 2, 0, SCAN, OWN,                                                              \
      "running sum, product, least or most along an axis")                                         \
    X(TOPK, topk, 1, 1, 0, TOPK, NONE,                                                             \
      "where the first k elements of an axis stand when it is in order")                           \
    X(SCATTER, scatter, 3, 4, 0, SCATTER, OWN,                                                     \
      "values set, added, or taken as least or most at an index tensor along an axis of x")        \
    X(SEGMENT, segment, 4, 4, 0, SEGMENT, NONE,                                                    \
      "a SCATTER over an ordered index: each element of x takes in a stretch of the order")        \
    X(CONTRACT, contract, 2, 2, TCI_IS_FOLD, CONTRACT, OWN,                                        \
      "sum of products over labelled axes (einsum of two operands)")                               \
    X(BOUND, bound, 0, 0, TCI_IS_LEAF | TCI_IS_MEMORY | TCI_IS_UNIQUE | TCI_IS_QUIET, NONE, LEAF,  \
      "what each step of a repetition gives its body anew")                                        \
    X(REPEAT, repeat, 1, MANY, 0, REPEAT, NONE, "a body done for one step after the other")        \
    X(RESULT, result, 1, MANY, 0, RESULT, NONE, "one of the results of a repetition")              \
    X(CUSTOM, custom, 1, MANY, 0, CUSTOM, OWN, "a C function of the user's")                       \
    X(COLLECTIVE, collective, 1, 1, TCI_IS_UNIQUE, COLLECTIVE, OWN,                                \
      "what the ranks of a communicator compute or move together")                                 \
    X(BARRIER, barrier, 1, MANY, TCI_IS_EXACT | TCI_IS_QUIET, BARRIER, OWN,                        \
      "its first operand, read from memory when all of them are computed")                         \
    X(ASSIGN, assign, 2, 2, TCI_IS_UNIQUE | TCI_IS_EFFECT, NONE, NONE,                             \
      "a parameter takes a value when the program has run")

#define TCI_COMPOSITE_OPS(X)                                                                       \
    X(SOFTMAX, softmax, 1, 1, AXIS, OWN, "exp(x - max) / sum along an axis")                       \
    X(LOG_SOFTMAX, log_softmax, 1, 1, AXIS, OWN,                                                   \
      "x - max - log(sum(exp(x - max))) along an axis")                                            \
    X(MEAN, mean, 1, 1, AXES, EXPANSION, "sum / count over axes")                                  \
    X(LAYER_NORM, layer_norm, 2, 4, LAYER_NORM, OWN,                                               \
      "(x - mean) / sqrt(var + eps) * weight + bias over axes")                                    \
    X(CROSS_ENTROPY, cross_entropy, 2, 2, NONE, OWN, "mean of -log_softmax(logits)[target]")       \
    X(LU, lu, 1, 1, NONE, OWN,                                                                     \
      "triangles whose product is x by rows in another order, and that order below them")          \
    X(SOLVE, solve, 3, 3, SOLVE, OWN, "what a x = b is solved by, given a, its LU and b")          \
    X(SOLVE_TRIANGULAR, solve_triangular, 2, 2, TRIANGLE, OWN,                                     \
      "what a x = b is solved by, a a lower triangle")                                             \
    X(CHOLESKY, cholesky, 1, 1, NONE, OWN, "the lower triangle l of l l' = x")                     \
    X(STOP_GRADIENT, stop_gradient, 1, 1, NONE, FLAT, "x, as a constant to gradients")             \
    X(WITH_DERIVATIVE, with_derivative, 2, 2, NONE, OWN,                                           \
      "its second operand, differentiated as its first, which is equal to it")                     \
    X(SHARD, shard, 1, 1, SHARD, OWN, "x, with the communicators that its axes are split over")    \
    X(CONV_TRANSPOSE, conv_transpose, 2, 2, CONV_TRANSPOSE, EXPANSION,                             \
      "the transpose of a convolution with respect to its images")                                 \
    X(NAMED, named, 2, MANY, NAMED, OWN,                                                           \
      "its first operand, which is the result of a call over the others")

/* Calls whose result keeps their name and operands, in a NAMED node around what the call expands
 * into, for model formats that have an operator of the same meaning: built rows, and calls of api/.
 * X(ID) */
#define TCI_NAMED_BUILT(X)                                                                         \
    X(LEAKY_RELU) X(ELU) X(CELU) X(SELU) X(MISH) X(SOFTPLUS) X(HARDTANH) X(RELU6) X(HARDSIGMOID)   \
    X(HARDSWISH) X(GELU_TANH)
#define TCI_NAMED_CALLS(X)                                                                         \
    X(CONV) X(BATCH_NORM) X(GROUP_NORM) X(INSTANCE_NORM) X(RMS_NORM) X(ATTENTION)

typedef enum tci_call_name {
#define TCI_ROW(id) TCI_NAMED_##id,
    TCI_NAMED_BUILT(TCI_ROW) TCI_NAMED_CALLS(TCI_ROW) TCI_NAMED_COUNT
#undef TCI_ROW
} tci_call_name;

/* Calls that no op is made for: what they give is their formula's nodes. */
#define TCI_BUILT_OPS(X)                                                                           \
    X(LEAKY_RELU, leaky_relu, 2, SAME, TCI_GIVEN(x) TCI_ELSE(negative_slope, 0.01),                \
      WHERE(LT(K(0), A), A, MUL(A, B)), "x above 0, else x * negative_slope")                      \
    X(ELU, elu, 2, FLOAT, TCI_GIVEN(x) TCI_ELSE(alpha, 1),                                         \
      WHERE(LT(K(0), A), A, MUL(B, EXPM1(WHERE(LT(K(0), A), K(0), A)))),                           \
      "x above 0, else alpha * (exp(x) - 1) (arXiv 1511.07289)")                                   \
    X(CELU, celu, 2, FLOAT, TCI_GIVEN(x) TCI_ELSE(alpha, 1),                                       \
      WHERE(LT(K(0), A), A, MUL(B, EXPM1(DIV(WHERE(LT(K(0), A), K(0), A), B)))),                   \
      "x above 0, else alpha * (exp(x / alpha) - 1) (arXiv 1704.07483)")                           \
    X(SELU, selu, 1, FLOAT, TCI_GIVEN(x),                                                          \
      MUL(K(1.0507009873554805),                                                                   \
          WHERE(LT(K(0), A), A,                                                                    \
                MUL(K(1.6732632423543772), EXPM1(WHERE(LT(K(0), A), K(0), A))))),                  \
      "elu scaled so that mean 0 and variance 1 stay (arXiv 1706.02515)")                          \
    X(MISH, mish, 1, FLOAT, TCI_GIVEN(x), MUL(A, TANH(LOG1PEXP(A))),                               \
      "x * tanh(softplus(x)) (arXiv 1908.08681)")                                                  \
    X(SOFTPLUS, softplus, 3, FLOAT, TCI_GIVEN(x) TCI_ELSE(beta, 1) TCI_ELSE(threshold, 20),        \
      WHERE(LT(C, MUL(A, B)), A, DIV(LOG1PEXP(MUL(A, B)), B)),                                     \
      "log(1 + exp(beta * x)) / beta, x where beta * x is above the threshold")                    \
    X(LOGSIGMOID, logsigmoid, 1, FLOAT, TCI_GIVEN(x), NEG(LOG1PEXP(NEG(A))),                       \
      "log(sigmoid(x))")                                                                           \
    X(SOFTSHRINK, softshrink, 2, SAME, TCI_GIVEN(x) TCI_ELSE(lambd, 0.5),                          \
      WHERE(LT(B, A), SUB(A, B), WHERE(LT(A, NEG(B)), ADD(A, B), MUL(A, K(0)))),                   \
      "x nearer to 0 by lambd, 0 within it")                                                       \
    X(HARDSHRINK, hardshrink, 2, SAME, TCI_GIVEN(x) TCI_ELSE(lambd, 0.5),                          \
      WHERE(LE(ABS(A), B), K(0), A), "x, 0 within lambd of 0")                                     \
    X(TANHSHRINK, tanhshrink, 1, FLOAT, TCI_GIVEN(x),                                              \
      WHERE(LT(ABS(A), K(1)),                                                                      \
            DIV(MUL(MUL(ADD(MUL(ADD(MUL(ADD(MUL(ADD(MUL(ADD(MUL(ADD(MUL(ADD(MUL(ADD(MUL(ADD(MUL(   \
                K(0.00000000000000000039145882126782523),                                          \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.00000000000000014797143443923793)), \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.00000000000004498331606952833)),    \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.000000000010706029224547743)),      \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.0000000019270852604185937)),        \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.0000002505210838544172)),           \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.000022045855379188714)),            \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.0011904761904761906)),              \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.03333333333333333)),                \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))), K(0.3333333333333333)),                 \
                SQUARE(WHERE(LT(ABS(A), K(1)), A, K(0)))),                                         \
                WHERE(LT(ABS(A), K(1)), A, K(0))), COSH(WHERE(LT(ABS(A), K(1)), A, K(0)))),        \
            SUB(A, TANH(A))), "x - tanh(x)")                                                       \
    X(THRESHOLD, threshold, 3, SAME, TCI_GIVEN(x) TCI_GIVEN(threshold) TCI_GIVEN(value),           \
      WHERE(LE(A, B), C, A), "x above the threshold, else value")                                  \
    X(HARDTANH, hardtanh, 3, SAME, TCI_GIVEN(x) TCI_ELSE(min_val, -1) TCI_ELSE(max_val, 1),        \
      WHERE(LE(A, B), B, WHERE(GE(A, C), C, A)), "x cut to [min_val, max_val]")                    \
    X(RELU6, relu6, 1, SAME, TCI_GIVEN(x), WHERE(LE(A, K(0)), K(0), WHERE(GE(A, K(6)), K(6), A)),  \
      "x cut to [0, 6]")                                                                           \
    X(HARDSIGMOID, hardsigmoid, 1, FLOAT, TCI_GIVEN(x),                                            \
      WHERE(LE(A, K(-3)), K(0),                                                                    \
            WHERE(GE(A, K(3)), K(1), MUL(ADD(A, K(3)), K(0.16666666666666667)))),                  \
      "(x + 3) / 6 cut to [0, 1]")                                                                 \
    X(HARDSWISH, hardswish, 1, FLOAT, TCI_GIVEN(x),                                                \
      WHERE(LT(A, K(-3)), K(0),                                                                    \
            WHERE(LE(K(3), A), A,                                                                  \
                  MUL(MUL(WHERE(LE(A, K(-3)), K(-3), WHERE(LE(K(3), A), K(3), A)),                 \
                          ADD(WHERE(LE(A, K(-3)), K(-3), WHERE(LE(K(3), A), K(3), A)), K(3))),     \
                      K(0.16666666666666667)))),                                                   \
      "x * hardsigmoid(x) (arXiv 1905.02244)")                                                     \
    X(GELU_TANH, gelu_tanh, 1, FLOAT, TCI_GIVEN(x),                                                \
      MUL(A, SIGMOID(MUL(K(1.5957691216057308),                                                    \
                         ADD(A, MUL(K(0.044715), MUL(A, SQUARE(A))))))),                           \
      "gelu, its normal distribution approximated by tanh (arXiv 1606.08415)")                     \
    X(LOGIT, logit, 2, FLOAT, TCI_GIVEN(x) TCI_ELSE(eps, -1),                                      \
      SUB(LOG(WHERE(LT(A, B), B, WHERE(LT(SUB(K(1), B), A), SUB(K(1), B), A))),                    \
          LOG1P(NEG(WHERE(LT(A, B), B, WHERE(LT(SUB(K(1), B), A), SUB(K(1), B), A))))),            \
      "log(x / (1 - x)), x cut to [eps, 1 - eps]; an eps of -1 cuts nothing")                      \
    X(LERP, lerp, 3, FLOAT, TCI_GIVEN(x) TCI_GIVEN(end) TCI_GIVEN(weight),                         \
      ADD(A, MUL(C, SUB(B, A))), "x + weight * (end - x)")                                         \
    X(ADDCMUL, addcmul, 4, SAME,                                                                   \
      TCI_GIVEN(x) TCI_GIVEN(tensor1) TCI_GIVEN(tensor2) TCI_ELSE(value, 1),                       \
      ADD(A, MUL(MUL(B, D), C)), "x + value * tensor1 * tensor2")                                  \
    X(ADDCDIV, addcdiv, 4, FLOAT,                                                                  \
      TCI_GIVEN(x) TCI_GIVEN(tensor1) TCI_GIVEN(tensor2) TCI_ELSE(value, 1),                       \
      ADD(A, DIV(MUL(B, D), C)), "x + value * tensor1 / tensor2")                                  \
    X(DEG2RAD, deg2rad, 1, FLOAT, TCI_GIVEN(x), MUL(A, K(0.017453292519943295)),                   \
      "degrees in radians")                                                                        \
    X(RAD2DEG, rad2deg, 1, FLOAT, TCI_GIVEN(x), MUL(A, K(57.29577951308232)),                      \
      "radians in degrees")                                                                        \
    X(MSE_LOSS, mse_loss, 2, LOSS, TCI_GIVEN(input) TCI_GIVEN(target), SQUARE(SUB(A, B)),          \
      "squared error")                                                                             \
    X(L1_LOSS, l1_loss, 2, LOSS, TCI_GIVEN(input) TCI_GIVEN(target), ABS(SUB(A, B)),               \
      "absolute error")                                                                            \
    X(SMOOTH_L1_LOSS, smooth_l1_loss, 3, LOSS,                                                     \
      TCI_GIVEN(input) TCI_GIVEN(target) TCI_ELSE(beta, 1),                                        \
      WHERE(LT(ABS(SUB(A, B)), C),                                                                 \
            DIV(MUL(K(0.5), SQUARE(WHERE(LT(ABS(SUB(A, B)), C), SUB(A, B), K(0)))),                \
                WHERE(LT(K(0), C), C, K(1))),                                                      \
            SUB(ABS(SUB(A, B)), MUL(K(0.5), C))),                                                  \
      "half the squared error over beta, from beta on the absolute error less beta / 2")           \
    X(HUBER_LOSS, huber_loss, 3, LOSS, TCI_GIVEN(input) TCI_GIVEN(target) TCI_ELSE(delta, 1),      \
      WHERE(LE(ABS(SUB(A, B)), C),                                                                 \
            MUL(K(0.5), SQUARE(WHERE(LE(ABS(SUB(A, B)), C), SUB(A, B), K(0)))),                    \
            MUL(C, SUB(ABS(SUB(A, B)), MUL(K(0.5), C)))),                                          \
      "half the squared error, beyond delta the line that goes on from it (Huber, 1964)")          \
    X(BINARY_CROSS_ENTROPY, binary_cross_entropy, 3, LOSS,                                         \
      TCI_GIVEN(input) TCI_GIVEN(target) TCI_ELSE(weight, 1),                                      \
      MUL(C, AS(                                                                                   \
        WHERE(LT(MUL(A, SUB(K(1), A)), K(0.000000000001)),                                         \
              SUB(MUL(SUB(A, STOP(A)),                                                             \
                      ADD(MUL(K(1000000000000), SUB(STOP(A), B)),                                  \
                          MUL(MUL(K(0.5), SUB(A, STOP(A))),                                        \
                              DIV(ADD(SUB(SQUARE(STOP(A)), MUL(MUL(K(2), STOP(A)), B)), B),        \
                                  SQUARE(MUL(ADD(STOP(A), K(0.000000000001)),                      \
                                             ADD(SUB(K(1), STOP(A)), K(0.000000000001)))))))),     \
                  ADD(MUL(B, MAXIMUM(LOG(STOP(A)), K(-100))),                                      \
                      MUL(SUB(K(1), B), MAXIMUM(LOG1P(NEG(STOP(A))), K(-100))))),                  \
              NEG(ADD(MUL(B, LOG(WHERE(LT(MUL(A, SUB(K(1), A)), K(0.000000000001)), K(0.5), A))),  \
                      MUL(SUB(K(1), B), LOG1P(NEG(                                                 \
                        WHERE(LT(MUL(A, SUB(K(1), A)), K(0.000000000001)), K(0.5), A))))))),       \
        NEG(ADD(MUL(B, MAXIMUM(LOG(A), K(-100))),                                                  \
                MUL(SUB(K(1), B), MAXIMUM(LOG1P(NEG(A)), K(-100))))))),                            \
      "-(target * log(input) + (1 - target) * log(1 - input)), each log at least -100")            \
    X(BINARY_CROSS_ENTROPY_WITH_LOGITS, binary_cross_entropy_with_logits, 4, LOSS,                 \
      TCI_GIVEN(input) TCI_GIVEN(target) TCI_ELSE(weight, 1) TCI_ELSE(pos_weight, 1),              \
      MUL(C, ADD(MUL(SUB(K(1), B), A),                                                             \
                 MUL(ADD(K(1), MUL(SUB(D, K(1)), B)), LOG1PEXP(NEG(A))))),                         \
      "binary cross entropy of sigmoid(input); pos_weight counts the targets of 1")                \
    X(GAUSSIAN_NLL_LOSS, gaussian_nll_loss, 5, LOSS_WIDE,                                          \
      TCI_GIVEN(input) TCI_GIVEN(target) TCI_GIVEN(var) TCI_ELSE(full, 0) TCI_ELSE(eps, 1e-6),     \
      ADD(MUL(K(0.5), ADD(LOG(AS(C, WHERE(LT(C, E), E, C))),                                       \
                          DIV(SQUARE(SUB(A, B)), AS(C, WHERE(LT(C, E), E, C))))),                  \
          MUL(K(0.9189385332046727), D)),                                                          \
      "(log(var) + squared error / var) / 2, var at least eps; full: 1 adds log(2 pi) / 2")        \
    X(MARGIN_RANKING_LOSS, margin_ranking_loss, 4, LOSS,                                           \
      TCI_GIVEN(input1) TCI_GIVEN(input2) TCI_GIVEN(target) TCI_ELSE(margin, 0),                   \
      WHERE(LE(SUB(D, MUL(C, SUB(A, B))), K(0)), K(0), SUB(D, MUL(C, SUB(A, B)))),                 \
      "max(0, margin - target * (input1 - input2))")                                               \
    X(SOFT_MARGIN_LOSS, soft_margin_loss, 2, LOSS, TCI_GIVEN(input) TCI_GIVEN(target),             \
      LOG1PEXP(NEG(MUL(A, B))), "log(1 + exp(-target * input))")                                   \
    X(HINGE_EMBEDDING_LOSS, hinge_embedding_loss, 3, LOSS,                                         \
      TCI_GIVEN(input) TCI_GIVEN(target) TCI_ELSE(margin, 1),                                      \
      ADD(WHERE(EQ(B, K(1)), K(0), WHERE(LE(SUB(C, A), K(0)), K(0), SUB(C, A))),                   \
          WHERE(EQ(B, K(-1)), K(0), A)),                                                           \
      "input for targets of 1, max(0, margin - input) for those of -1")

/* The attribute lists. X(name, kind, times) in the order of a node's words; shape and dtype of a
 * node are no words.
 *   kind     AXIS an axis of the first input; SIZE at least 1 and PLACE of any sign, both may be
 *            symbolic; COUNT follows from the others; LABEL of an axis; FLAG 0 or 1; MODE of the
 *            rows below
 *   times    FIRST one word; EACH one for each axis of the first input and REST as many as there
 *            are, neighbours of one kind in turn; LAST one word, after them */
#define TCI_ATTRS_NONE(X)
#define TCI_ATTRS_AXIS(X) X(axis, AXIS, FIRST)
#define TCI_ATTRS_AXES(X) X(axes, AXIS, REST)
#define TCI_ATTRS_SOLVE(X) X(transposed, FLAG, FIRST)
#define TCI_ATTRS_TRIANGLE(X) X(unit, FLAG, FIRST)
#define TCI_ATTRS_SCAN(X)                                                                          \
    X(axis, AXIS, FIRST) X(reverse, FLAG, FIRST) X(mode, MODE, FIRST) X(linked, SIZE, REST)
#define TCI_ATTRS_SCATTER(X) X(axis, AXIS, FIRST) X(mode, MODE, FIRST) X(apart, FLAG, FIRST)
#define TCI_ATTRS_SEGMENT(X) X(axis, AXIS, FIRST) X(mode, MODE, FIRST)
#define TCI_ATTRS_CUSTOM(X) X(op, COUNT, FIRST)
#define TCI_ATTRS_COLLECTIVE(X)                                                                    \
    X(verb, COUNT, FIRST) X(how, COUNT, FIRST) X(comm, COUNT, FIRST) X(ranks, COUNT, FIRST)        \
    X(peer, COUNT, FIRST) X(number, COUNT, FIRST)
#define TCI_ATTRS_BARRIER(X) X(sinks, FLAG, FIRST)
#define TCI_ATTRS_TOPK(X) X(axis, AXIS, FIRST) X(largest, FLAG, FIRST)
#define TCI_ATTRS_ORDER(X) X(order, AXIS, EACH)
#define TCI_ATTRS_SHARD(X) X(comm, COUNT, EACH)
#define TCI_ATTRS_SLICE(X) X(start, PLACE, EACH) X(step, PLACE, EACH)
#define TCI_ATTRS_PAD(X) X(before, PLACE, EACH)
#define TCI_ATTRS_WINDOW(X)                                                                        \
    X(axis, AXIS, REST) X(kernel, SIZE, REST) X(stride, SIZE, REST) X(dilation, SIZE, REST)
#define TCI_ATTRS_CONTRACT(X)                                                                      \
    X(rank_a, COUNT, FIRST) X(rank_b, COUNT, FIRST) X(rank_out, COUNT, FIRST)                      \
    X(labels, LABEL, REST)
#define TCI_ATTRS_REPEAT(X)                                                                        \
    X(carries, COUNT, FIRST) X(inputs, COUNT, FIRST) X(held, COUNT, FIRST)                         \
    X(outputs, COUNT, FIRST) X(length, PLACE, FIRST) X(reverse, FLAG, FIRST)                       \
    X(stops, COUNT, FIRST)
#define TCI_ATTRS_RESULT(X) X(result, COUNT, FIRST) X(repeat, COUNT, REST)
#define TCI_ATTRS_CONV_TRANSPOSE(X)                                                                \
    X(groups, SIZE, FIRST) X(stride, SIZE, REST) X(dilation, SIZE, REST) X(before, PLACE, REST)
#define TCI_ATTRS_NAMED(X) X(call, COUNT, FIRST) X(words, COUNT, REST)
#define TCI_ATTRS_LAYER_NORM(X)                                                                    \
    X(n_axes, COUNT, FIRST) X(axes, AXIS, REST) X(has_weight, FLAG, LAST) X(has_bias, FLAG, LAST)

/* How a stored value combines with the stored element, or with the running value of a SCAN: SET
 * replaces it; a row combines the two, the element first. X(ID, word in a kernel's text, the
 * corresponding reduction, the corresponding elementwise op) */
#define TCI_COMBINE_MODES(X)                                                                       \
    X(ADD, "+=", SUM, ADD)                                                                         \
    X(MIN, "min=", MIN, MINIMUM)                                                                   \
    X(MAX, "max=", MAX, MAXIMUM)                                                                   \
    X(MUL, "*=", PROD, MUL)

typedef enum tci_mode {
#define TCI_ROW(id, word, fold, pair) TCI_MODE_##id,
    TCI_MODE_SET,
    TCI_COMBINE_MODES(TCI_ROW) TCI_MODE_COUNT
#undef TCI_ROW
} tci_mode;

/* The words of the columns that are neither a prim nor a row. X(ID, operands, where it may stand:
 * VALUE; GRADIENT; BOTH; BUILT: built rows alone; COMBINE: combine rows; REDUCE: gradients of
 * reduce rows) */
#define TCI_COLUMN_WORDS(X)                                                                        \
    X(A, 0, BOTH)                /* the first operand */                                           \
    X(B, 0, BOTH)                /* the second */                                                  \
    X(C, 0, BOTH)                /* the third */                                                   \
    X(D, 0, BUILT)               /* and so on */                                                   \
    X(E, 0, BUILT)                                                                                 \
    X(STOP, 1, BUILT)            /* a, as a constant to gradients */                               \
    X(AS, 2, BUILT)              /* b, differentiated as a, which broadcasts to it */              \
    X(Y, 0, GRADIENT)            /* the result */                                                  \
    X(G, 0, GRADIENT)            /* its gradient */                                                \
    X(TETRAGAMMA, 1, GRADIENT)   /* the derivative of trigamma */                                  \
    X(SINC_SLOPE, 1, GRADIENT)   /* the derivative of sinc */                                      \
    X(GELU_SLOPE, 1, GRADIENT)   /* the derivative of gelu */                                      \
    X(MAX, 2, VALUE)             /* a where a > b or a is NaN, else b */                           \
    X(MIN, 2, VALUE)             /* a where a < b or a is NaN, else b */                           \
    X(MODULO, 2, VALUE)          /* Python's remainder: the sign of b */                           \
    X(FLOOR_DIVIDE, 2, VALUE)    /* floor of the exact a / b, of integers 0 where b is */          \
    X(MINUS, 1, VALUE)           /* the sign bit of a, false of unsigned integers */               \
    X(A1, 0, COMBINE)            /* further parts of the first tuple */                            \
    X(A2, 0, COMBINE)                                                                              \
    X(A3, 0, COMBINE)                                                                              \
    X(B1, 0, COMBINE)            /* and of the second */                                           \
    X(B2, 0, COMBINE)                                                                              \
    X(B3, 0, COMBINE)                                                                              \
    X(INDEX, 0, COMBINE)         /* where the element stands along the axis */                     \
    X(ABOVE, 2, COMBINE)         /* a > b, or a is NaN and b is not */                             \
    X(BELOW, 2, COMBINE)         /* a < b, or so */                                                \
    X(LEVEL, 2, COMBINE)         /* a == b, or both are NaN */                                     \
    X(T, 1, COMBINE)             /* a COUNT in the dtype T */                                      \
    X(SPREAD, 1, REDUCE)         /* t along the axes it was reduced by */                          \
    X(TALLY, 1, REDUCE)          /* how many are true along them */                                \
    X(OTHERS, 0, REDUCE)   /* the product of the other elements along them */                      \
    X(CENTRED, 0, REDUCE)  /* the first operand less its mean along them */

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
} tci_op;

/* Reduction of a kernel: a combine row. */
typedef enum tci_red_op {
#define TCI_ROW(id, ...) TCI_RED_##id,
    TCI_COMBINES(TCI_ROW)
#undef TCI_ROW
} tci_red_op;

/* Kind of a built call. */
typedef enum tci_built {
#define TCI_ROW(id, ...) TCI_BUILT_##id,
    TCI_BUILT_OPS(TCI_ROW)
#undef TCI_ROW
} tci_built;

/* No enumerator of tci_op, so that a switch over all ops needs no case for it. */
enum {
#define TCI_ROW(...) +1
    TCI_OP_COUNT = 0 TCI_EW_OPS(TCI_ROW) TCI_REDUCE_OPS(TCI_ROW) TCI_SPECIAL_OPS(TCI_ROW)
        TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
};

/* TCI_EW_OPS(TCI_OP_CASE) stands for all of them in a switch. */
#define TCI_OP_CASE(id, ...) case TCI_OP_##id:

#endif
