/* ops/prim.h - scalar primitives of the kernel IR.
 *
 * A kernel value has a compute dtype: bool, any integer, f32 or f64 (f16 and bf16 values travel as
 * f32 that ROUND has made representable). The interpreter, the scalar C, the vector C and the CUDA
 * dialect each give every row a meaning, and all give the same bits; for NaN only NaN-ness is
 * guaranteed: sign and payload depend on the processor and the operand order. Two classes:
 *   BASE primitives must be implemented by every dialect. MATH primitives have an expansion
 *   (ops/math.h) into BASE primitives, written once; a dialect prints the expansion as a function,
 *   the interpreter runs it block-wise.
 *
 * Exact meaning of BASE rows (T = the operands' dtype):
 *   ADD SUB MUL        IEEE for floats, wrapping for integers
 *   DIV                IEEE; integers truncate, x/0 = 0, MIN/-1 = MIN
 *   REM                integers: C's % with x%0 = 0 and x%-1 = 0; floats: exact fmod
 *   FMA(a,b,c)         floats: one rounding
 *   NEG ABS SQRT       NEG flips the sign bit; ABS clears it; integers wrap; SQRT correctly rounded
 *   PMIN(a,b)          a < b ? a : b   (one instruction; b when either is NaN)
 *   PMAX(a,b)          a > b ? a : b
 *   FLOOR CEIL TRUNC RINT   to an integral float; RINT ties to even
 *   EQ LT LE           -> bool; false when either is NaN
 *   AND OR XOR NOT     bitwise on integers, logical on bool
 *   MULHI(a,b)         integers: the high half of the exact product, twice as wide; bool: 0
 *   POWI(a,b)          integers: a to the b, wrapping; b < 0 gives the integer part of 1 / a^-b,
 *                      and 0 where a is 0
 *   GCD(a,b)           integers: the greatest common divisor of the magnitudes, 0 where both are 0;
 *                      that of the least integer, which has no magnitude of its own, wraps
 *   SHL SHR            by b: b >= width (as unsigned) gives 0, for signed SHR the sign
 *   SELECT(m,a,b)      m ? a : b, m bool
 *   CAST               dtype to dtype with tc's edge cases: float -> int truncates, saturates,
 *                      NaN -> 0; int -> int wraps; anything -> bool is != 0; bool -> x is 0 or 1;
 *                      to nearest even
 *   BITS               reinterpret between float and the integer of the same width
 *   ROUND16 ROUNDB16   f32 -> the nearest f32 that f16 / bf16 holds, ties to even, subnormals kept;
 *                      NaN -> a NaN that it holds, so that truncating its bits never makes infinity
 *   TOINT              float -> signed int of the same width for values known in range (truncates)
 *   LANE1(a,m)         calls a scalar helper (imm = tci_helper_id, ops/math.h) for each lane whose
 *                      mask m (bool) is true; other lanes give 0. Lazy: when no lane is active the
 *                      call costs one test; slow paths are SELECT(big, LANE1(x, big), fast) */
#ifndef TCI_OPS_PRIM_H
#define TCI_OPS_PRIM_H

#include "dtype.h"

/* X(ID, name, arity, result: S same as operands, B bool, O given separately, cost in flops) */
#define TCI_BASE_PRIMS(X)                                                                         \
    X(ADD, "add", 2, S, 1) X(SUB, "sub", 2, S, 1) X(MUL, "mul", 2, S, 1)                          \
    X(DIV, "div", 2, S, 4) X(REM, "rem", 2, S, 20) X(FMA, "fma", 3, S, 2)                         \
    X(NEG, "neg", 1, S, 1) X(ABS, "abs", 1, S, 1) X(SQRT, "sqrt", 1, S, 4)                        \
    X(PMIN, "pmin", 2, S, 1) X(PMAX, "pmax", 2, S, 1) X(FLOOR, "floor", 1, S, 1)                  \
    X(CEIL, "ceil", 1, S, 1) X(TRUNC, "trunc", 1, S, 1) X(RINT, "rint", 1, S, 1)                  \
    X(EQ, "eq", 2, B, 1) X(LT, "lt", 2, B, 1) X(LE, "le", 2, B, 1) X(AND, "and", 2, S, 1)         \
    X(OR, "or", 2, S, 1) X(XOR, "xor", 2, S, 1) X(NOT, "not", 1, S, 1)                            \
    X(SHL, "shl", 2, S, 1) X(SHR, "shr", 2, S, 1) X(MULHI, "mulhi", 2, S, 3)                      \
    X(POWI, "powi", 2, S, 60) X(GCD, "gcd", 2, S, 200) X(SELECT, "select", 3, S, 1)               \
    X(CAST, "cast", 1, O, 1) X(BITS, "bits", 1, O, 0) X(ROUND16, "round16", 1, S, 4)              \
    X(ROUNDB16, "roundb16", 1, S, 3) X(TOINT, "toint", 1, O, 1) X(LANE1, "lane1", 2, S, 40)
/* MATH rows: f32 and f64 only (integers have POWI). Same columns. Ulp
 * bounds: tests/unit/test_math.c. EXPN is EXP, bit for bit, where its operand is not above 0, in
 * fewer instructions; above 0 it is what its expansion gives. GELUH is GELU in fewer instructions,
 * for results that are rounded to f16 or bf16. LOG_LOW(d, l) is log(1 + e^-d) - l, what
 * rounding took of l, which is near that, d >= 0; 0 where l is not above 2^-100. LOG2_LOW: of
 * log2(1 + 2^-d). */
#define TCI_MATH_PRIMS(X)                                                                         \
    X(EXP, "exp", 1, S, 12) X(EXPN, "expn", 1, S, 9)                                              \
    X(LOG, "log", 1, S, 16) X(SIN, "sin", 1, S, 14)                                               \
    X(COS, "cos", 1, S, 14) X(TANH, "tanh", 1, S, 20) X(ERF, "erf", 1, S, 24)                     \
    X(SIGMOID, "sigmoid", 1, S, 18) X(GELU, "gelu", 1, S, 44)                                     \
    X(GELUH, "geluh", 1, S, 30) X(POW, "pow", 2, S, 80)                                           \
    X(TAN, "tan", 1, S, 24) X(ERFC, "erfc", 1, S, 30) X(ERFINV, "erfinv", 1, S, 120)              \
    X(LGAMMA, "lgamma", 1, S, 160) X(DIGAMMA, "digamma", 1, S, 120)                               \
    X(TRIGAMMA, "trigamma", 1, S, 100)                                                            \
    X(EXPM1, "expm1", 1, S, 14) X(EXP2, "exp2", 1, S, 14) X(SINH, "sinh", 1, S, 24)               \
    X(COSH, "cosh", 1, S, 20) X(LOG1P, "log1p", 1, S, 24) X(LOG2, "log2", 1, S, 20)               \
    X(LOG10, "log10", 1, S, 20) X(ATAN2, "atan2", 2, S, 30) X(COPYSIGN, "copysign", 2, S, 2) \
    X(ASIN, "asin", 1, S, 28) X(ACOS, "acos", 1, S, 28)                                           \
    X(SINC, "sinc", 1, S, 22) X(LOG_LOW, "log_low", 2, S, 2) X(LOG2_LOW, "log2_low", 2, S, 2)

typedef enum tci_prim {
#define TCI_ROW(id, name, arity, result, cost) TCI_P_##id,
    TCI_BASE_PRIMS(TCI_ROW) TCI_P_BASE_COUNT,
    TCI_P_MATH_FIRST = TCI_P_BASE_COUNT - 1,
    TCI_MATH_PRIMS(TCI_ROW)
#undef TCI_ROW
        TCI_P_COUNT
} tci_prim;

/* TCI_BASE_PRIMS(TCI_PRIM_CASE) stands for all of them in a switch. */
#define TCI_PRIM_CASE(id, ...) case TCI_P_##id:

typedef struct tci_prim_info {
    char name[12]; /* no pointer: nothing to relocate */
    uint8_t arity;
    char result;  /* 'S', 'B' or 'O' */
    uint8_t cost; /* flops, for the cost model */
} tci_prim_info;
TCI_FN const tci_prim_info *tci_prim_get(tci_prim p);
static inline bool tci_prim_is_math(tci_prim p)
{
    return p > TCI_P_MATH_FIRST;
}

#endif
