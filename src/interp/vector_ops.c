/* interp/vector_ops.c - implements the vector operations of the interpreter: one loop over a block
 * for each basic scalar primitive (BASE prim) and dtype.
 *
 * In: arrays of one block. Out: an array. An operand that is the same for the whole block is one
 * 64-byte group of equal elements with stride 0, so each loop exists once, not once per mix. There
 * are two classes. GROUP loops work on whole 64-byte groups (arrays are padded to 64 bytes; lanes
 * past the end compute garbage that is never read); all operands have the same element size. ELEM
 * loops work on the exact count of elements.
 *
 * bool values are lane masks: 0 or all ones, in elements as wide as the values they were compared
 * from.
 *
 * The hot loops are compiled twice: for the baseline of the build, and on x86-64 for AVX2 + FMA,
 * chosen at run time. Each prim is a single rounding in both, so the bits agree. Compilers without
 * GNU vector types get no loops: the interpreter then evaluates element by element with
 * tci_prim_eval. */
#include <math.h>

#include "../ops/math.h"
#include "linear_ir.h"

#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)

TCI_QUICK_BEGIN

/* ---- types, all free to alias ----
 * Vectors of 16 bytes (the baseline's) and of 32 (AVX2), of 8 lanes (conversions), and scalars. */

#define TCI_IP_TYPE(name, type, bytes)                                                             \
    typedef type tci_v16_##name __attribute__((vector_size(16), aligned(1), may_alias));           \
    typedef type tci_v32_##name __attribute__((vector_size(32), aligned(1), may_alias));           \
    typedef type tci_w_##name __attribute__((vector_size(8 * bytes), aligned(1), may_alias));      \
    typedef type tci_s_##name __attribute__((may_alias));
TCI_IP_TYPE(f32, float, 4)
TCI_IP_TYPE(f64, double, 8)
TCI_IP_TYPE(u8, uint8_t, 1)
TCI_IP_TYPE(u16, uint16_t, 2)
TCI_IP_TYPE(u32, uint32_t, 4)
TCI_IP_TYPE(u64, uint64_t, 8)
TCI_IP_TYPE(i8, int8_t, 1)
TCI_IP_TYPE(i16, int16_t, 2)
TCI_IP_TYPE(i32, int32_t, 4)
TCI_IP_TYPE(i64, int64_t, 8)
#undef TCI_IP_TYPE

#define TCI_IP_DT_f32 TC_F32
#define TCI_IP_DT_f64 TC_F64
#define TCI_IP_DT_u8 TC_U8
#define TCI_IP_DT_u16 TC_U16
#define TCI_IP_DT_u32 TC_U32
#define TCI_IP_DT_u64 TC_U64
#define TCI_IP_DT_i8 TC_I8
#define TCI_IP_DT_i16 TC_I16
#define TCI_IP_DT_i32 TC_I32
#define TCI_IP_DT_i64 TC_I64

#if defined(__x86_64__)
#define TCI_IP_HAS_AVX2
#define TCI_IP_ATTR_avx2 __attribute__((target("avx2,fma")))
#endif
#define TCI_IP_ATTR_base

/* ---- loop shapes; the expression is over x, y, z ----
 * TCI_IP_V(T) is the vector type of the loops at hand. The elements of a group being equal, an
 * operand that does not vary is read at its first vector over and over. */

#define TCI_IP_LOOP(isa, name)                                                                     \
    TCI_IP_ATTR_##isa static void tci_interp_##name##_##isa(                                       \
        void *out, const void *const *in, const uint8_t *vary, int64_t count)
#define TCI_IP_OPERAND(V, i)                                                                       \
    const V *p##i = in[i];                                                                         \
    const int64_t step##i = vary[i] * (int64_t)sizeof(V) /* bytes: the loop only adds */
#define TCI_IP_STEP(V, i) (p##i = (const V *)((const char *)p##i + step##i))

#define TCI_IP_unary(isa, name, T, expr)                                                           \
    TCI_IP_LOOP(isa, name)                                                                         \
    {                                                                                              \
        typedef TCI_IP_V(T) tci_v;                                                                 \
        tci_v *r = out, *end = r + count * (TCI_INTERP_GROUP / (int)sizeof *r);                    \
        TCI_IP_OPERAND(tci_v, 0);                                                                  \
        for (; r < end; r++, TCI_IP_STEP(tci_v, 0)) {                                              \
            const tci_v x = *p0;                                                                   \
            *r = (tci_v)(expr);                                                                    \
        }                                                                                          \
    }
#define TCI_IP_binary(isa, name, T, expr)                                                          \
    TCI_IP_LOOP(isa, name)                                                                         \
    {                                                                                              \
        typedef TCI_IP_V(T) tci_v;                                                                 \
        tci_v *r = out, *end = r + count * (TCI_INTERP_GROUP / (int)sizeof *r);                    \
        TCI_IP_OPERAND(tci_v, 0);                                                                  \
        TCI_IP_OPERAND(tci_v, 1);                                                                  \
        for (; r < end; r++, TCI_IP_STEP(tci_v, 0), TCI_IP_STEP(tci_v, 1)) {                       \
            const tci_v x = *p0, y = *p1;                                                          \
            *r = (tci_v)(expr);                                                                    \
        }                                                                                          \
    }
#define TCI_IP_ternary(isa, name, T, expr)                                                         \
    TCI_IP_LOOP(isa, name)                                                                         \
    {                                                                                              \
        typedef TCI_IP_V(T) tci_v;                                                                 \
        tci_v *r = out, *end = r + count * (TCI_INTERP_GROUP / (int)sizeof *r);                    \
        TCI_IP_OPERAND(tci_v, 0);                                                                  \
        TCI_IP_OPERAND(tci_v, 1);                                                                  \
        TCI_IP_OPERAND(tci_v, 2);                                                                  \
        for (; r < end; r++, TCI_IP_STEP(tci_v, 0), TCI_IP_STEP(tci_v, 1), TCI_IP_STEP(tci_v, 2)) {\
            const tci_v x = *p0, y = *p1, z = *p2;                                                 \
            *r = (tci_v)(expr);                                                                    \
        }                                                                                          \
    }
/* One element at a time, where the baseline has no instruction; operands there are not are taken to
 * be the first. */
#define TCI_IP_scalar(isa, name, T, times, expr)                                                   \
    TCI_IP_LOOP(isa, name)                                                                         \
    {                                                                                              \
        tci_s_##T *r = out, *end = r + count * (times);                                            \
        const tci_s_##T *p0 = in[0], *p1 = in[1] ? in[1] : p0, *p2 = in[2] ? in[2] : p0;           \
        const int step0 = vary[0], step1 = vary[1], step2 = vary[2];                               \
        for (; r < end; r++, p0 += step0, p1 += step1, p2 += step2) {                              \
            const tci_s_##T x = *p0, y = *p1, z = *p2;                                             \
            (void)y;                                                                               \
            (void)z;                                                                               \
            *r = (tci_s_##T)(expr);                                                                \
        }                                                                                          \
    }
#define TCI_IP_lanes(isa, name, T, expr)                                                           \
    TCI_IP_scalar(isa, name, T, TCI_INTERP_GROUP / (int)sizeof *r, expr)

/* ---- rows of GROUP loops: X(prim, shape, T, expression) ---- */

#define TCI_IP_PICK(T, m, a, b)                                                                    \
    (((TCI_IP_V(T))(m) & (TCI_IP_V(T))(a)) | (~(TCI_IP_V(T))(m) & (TCI_IP_V(T))(b)))
/* Shifts by no less than the width give 0, or the sign. */
#define TCI_IP_SHIFT(T, shifted, bits) ((shifted) & (TCI_IP_V(T))(y < bits))
#define TCI_IP_SIGNED_SHIFT(T, U, bits)                                                            \
    (x >> (((y | (TCI_IP_V(T))((TCI_IP_V(U))y > bits - 1)) & (bits - 1))))
/* Loops that serve both signednesses are listed for the unsigned type (tci_interp_loop_find
 * maps). */
#define TCI_IP_COMMON_ROWS(X)                                                                      \
    X(ADD, binary, f32, x + y) X(ADD, binary, f64, x + y) X(ADD, binary, u32, x + y)               \
    X(ADD, binary, u64, x + y) X(SUB, binary, f32, x - y) X(SUB, binary, f64, x - y)               \
    X(SUB, binary, u32, x - y) X(SUB, binary, u64, x - y) X(MUL, binary, f32, x * y)               \
    X(MUL, binary, f64, x * y) X(MUL, binary, u32, x * y) X(MUL, binary, u64, x * y)               \
    X(DIV, binary, f32, x / y) X(DIV, binary, f64, x / y) X(MULADD, ternary, u32, x * y + z)       \
    X(MULADD, ternary, u64, x * y + z) X(AND, binary, u64, x & y) X(OR, binary, u64, x | y)        \
    X(XOR, binary, u64, x ^ y) X(SELECT, ternary, u64, (x & y) | (~x & z))                         \
    X(EQ, binary, f32, x == y) X(EQ, binary, f64, x == y) X(EQ, binary, u32, x == y)               \
    X(EQ, binary, u64, x == y) X(LT, binary, f32, x < y) X(LT, binary, f64, x < y)                 \
    X(LT, binary, i32, x < y) X(LT, binary, i64, x < y) X(LT, binary, u32, x < y)                  \
    X(LT, binary, u64, x < y) X(LE, binary, f32, x <= y) X(LE, binary, f64, x <= y)                \
    X(LE, binary, i32, x <= y) X(LE, binary, i64, x <= y) X(LE, binary, u32, x <= y)               \
    X(LE, binary, u64, x <= y) X(PMIN, binary, i32, TCI_IP_PICK(i32, x < y, x, y))                 \
    X(PMIN, binary, i64, TCI_IP_PICK(i64, x < y, x, y))                                            \
    X(PMAX, binary, i32, TCI_IP_PICK(i32, x > y, x, y))                                            \
    X(PMAX, binary, i64, TCI_IP_PICK(i64, x > y, x, y))                                            \
    X(SHL, binary, u32, TCI_IP_SHIFT(u32, x << (y & 31), 32))                                      \
    X(SHL, binary, u64, TCI_IP_SHIFT(u64, x << (y & 63), 64))                                      \
    X(SHR, binary, u32, TCI_IP_SHIFT(u32, x >> (y & 31), 32))                                      \
    X(SHR, binary, u64, TCI_IP_SHIFT(u64, x >> (y & 63), 64))                                      \
    X(SHR, binary, i32, TCI_IP_SIGNED_SHIFT(i32, u32, 32))                                         \
    X(SHR, binary, i64, TCI_IP_SIGNED_SHIFT(i64, u64, 64))                                         \
    X(ROUNDB16, unary, u32, TCI_IP_ROUNDB16(x)) X(ROUND16, unary, u32, TCI_IP_ROUND16(x))          \
    X(MAXIMUM, binary, f32, TCI_IP_EXTREME(f32, i32, >))                                           \
    X(MAXIMUM, binary, f64, TCI_IP_EXTREME(f64, i64, >))                                           \
    X(MINIMUM, binary, f32, TCI_IP_EXTREME(f32, i32, <))                                           \
    X(MINIMUM, binary, f64, TCI_IP_EXTREME(f64, i64, <))

/* bf16: add half of the last kept bit (ties to even) and cut; NaN stays a quiet NaN. */
#define TCI_IP_ROUNDB16(x)                                                                         \
    TCI_IP_PICK(u32, (x & 0x7fffffffu) > 0x7f800000u, (x & 0xffff0000u) | 0x400000u,               \
                (x + 0x7fffu + ((x >> 16) & 1u)) & 0xffff0000u)
/* f16: the same at bit 13, 65520 and above to infinity; below 2^-14 the spacing is 2^-24, which is
 * that of f32 at 0.5: adding and taking away 0.5 rounds there. */
#define TCI_IP_ROUND16(x)                                                                          \
    ((x & 0x80000000u) |                                                                           \
     TCI_IP_PICK(u32, (x & 0x7fffffffu) > 0x7f800000u, (x & 0x7fffe000u) | 0x400000u,              \
                 TCI_IP_PICK(u32, (x & 0x7fffffffu) >= 0x477ff000u, (x & 0u) + 0x7f800000u,        \
                             TCI_IP_PICK(u32, (x & 0x7fffffffu) < 0x38800000u,                     \
                                         TCI_IP_ROUND16_TINY(x & 0x7fffffffu),                     \
                                         TCI_IP_ROUND16_USUAL(x & 0x7fffffffu)))))
#define TCI_IP_ROUND16_TINY(x) ((TCI_IP_V(u32))(((TCI_IP_V(f32))(x) + 0.5f) - 0.5f))
#define TCI_IP_ROUND16_USUAL(x) (((x) + 0xfffu + (((x) >> 13) & 1u)) & 0x7fffe000u)
/* Reductions' maximum and minimum: the accumulator stays when it is NaN. */
#define TCI_IP_EXTREME(T, I, cmp) TCI_IP_PICK(I, (x cmp y) | (x != x), x, y)

/* Where x86 has an instruction that GNU C cannot express. */
#define TCI_IP_AVX2_ROWS(X)                                                                        \
    X(FMA, ternary, f32, __builtin_ia32_vfmaddps256(x, y, z))                                      \
    X(FMA, ternary, f64, __builtin_ia32_vfmaddpd256(x, y, z))                                      \
    X(SQRT, unary, f32, __builtin_ia32_sqrtps256(x))                                               \
    X(SQRT, unary, f64, __builtin_ia32_sqrtpd256(x))                                               \
    X(FLOOR, unary, f32, __builtin_ia32_roundps256(x, 9))                                          \
    X(FLOOR, unary, f64, __builtin_ia32_roundpd256(x, 9))                                          \
    X(CEIL, unary, f32, __builtin_ia32_roundps256(x, 10))                                          \
    X(CEIL, unary, f64, __builtin_ia32_roundpd256(x, 10))                                          \
    X(TRUNC, unary, f32, __builtin_ia32_roundps256(x, 11))                                         \
    X(TRUNC, unary, f64, __builtin_ia32_roundpd256(x, 11))                                         \
    X(RINT, unary, f32, __builtin_ia32_roundps256(x, 8))                                           \
    X(RINT, unary, f64, __builtin_ia32_roundpd256(x, 8))                                           \
    X(PMIN, binary, f32, __builtin_ia32_minps256(x, y))                                            \
    X(PMIN, binary, f64, __builtin_ia32_minpd256(x, y))                                            \
    X(PMAX, binary, f32, __builtin_ia32_maxps256(x, y))                                            \
    X(PMAX, binary, f64, __builtin_ia32_maxpd256(x, y))                                            \
    X(MULHI, binary, u32, TCI_IP_MULHI(x, y))
/* The products of even lanes, then of odd ones; clang knows the instruction in the operators. */
#define TCI_IP_MULHI(x, y)                                                                         \
    ((TCI_IP_EVEN(x, y) >> 32) |                                                                   \
     (TCI_IP_EVEN((TCI_IP_V(u64))x >> 32, (TCI_IP_V(u64))y >> 32) & 0xffffffff00000000))
#ifdef __clang__
#define TCI_IP_EVEN(x, y)                                                                          \
    (((TCI_IP_V(u64))(x) & 0xffffffff) * ((TCI_IP_V(u64))(y) & 0xffffffff))
#else
#define TCI_IP_EVEN(x, y)                                                                          \
    ((TCI_IP_V(u64))__builtin_ia32_pmuludq256((TCI_IP_V(i32))(x), (TCI_IP_V(i32))(y)))
#endif
/* The same where it has not, and elsewhere. */
#define TCI_IP_BASE_ROWS(X)                                                                        \
    X(FMA, lanes, f32, fmaf(x, y, z)) X(FMA, lanes, f64, fma(x, y, z))                             \
    X(SQRT, lanes, f32, sqrtf(x)) X(SQRT, lanes, f64, sqrt(x))                                     \
    X(FLOOR, lanes, f32, floorf(x)) X(FLOOR, lanes, f64, floor(x))                                 \
    X(CEIL, lanes, f32, ceilf(x)) X(CEIL, lanes, f64, ceil(x))                                     \
    X(TRUNC, lanes, f32, truncf(x)) X(TRUNC, lanes, f64, trunc(x))                                 \
    X(RINT, lanes, f32, rintf(x)) X(RINT, lanes, f64, rint(x))                                     \
    X(PMIN, lanes, f32, x < y ? x : y) X(PMIN, lanes, f64, x < y ? x : y)                          \
    X(PMAX, lanes, f32, x > y ? x : y) X(PMAX, lanes, f64, x > y ? x : y)                          \
    X(MULHI, lanes, u32, (uint64_t)x * y >> 32)

/* Small and rare types: baseline code only. */
#define TCI_IP_SMALL_ROWS(X, U, I, bits)                                                           \
    X(ADD, binary, U, x + y) X(SUB, binary, U, x - y) X(MUL, binary, U, x * y)                     \
    X(MULADD, ternary, U, x * y + z) X(EQ, binary, U, x == y) X(LT, binary, U, x < y)              \
    X(LT, binary, I, x < y) X(LE, binary, U, x <= y) X(LE, binary, I, x <= y)                      \
    X(PMIN, lanes, I, x < y ? x : y) X(PMAX, lanes, I, x > y ? x : y)                              \
    X(SHL, lanes, U, y < bits ? (unsigned)x << y : 0)                                              \
    X(SHR, lanes, U, y < bits ? x >> y : 0)                                                        \
    X(SHR, lanes, I, x >> ((y & ~(bits - 1)) ? bits - 1 : y))                                      \
    X(MULHI, lanes, U, (unsigned)x * y >> bits) X(MULHI, lanes, I, x * y >> bits)                  \
    TCI_IP_WHOLE_ROWS(X, U, I)
#define TCI_IP_WHOLE_ROWS(X, U, I)                                                                 \
    X(POWI, lanes, U, tci_powi_u64(x, y)) X(POWI, lanes, I, tci_powi_i64(x, y))                    \
    X(GCD, lanes, U, tci_gcd_u64(x, y)) X(GCD, lanes, I, tci_gcd_i64(x, y))
#define TCI_IP_RARE_ROWS(X)                                                                        \
    TCI_IP_SMALL_ROWS(X, u8, i8, 8) TCI_IP_SMALL_ROWS(X, u16, i16, 16)                             \
    TCI_IP_WHOLE_ROWS(X, u32, i32) TCI_IP_WHOLE_ROWS(X, u64, i64)                                  \
    X(PMIN, lanes, u8, x < y ? x : y) X(PMAX, lanes, u8, x > y ? x : y)                            \
    X(PMIN, lanes, u16, x < y ? x : y) X(PMAX, lanes, u16, x > y ? x : y)                          \
    X(PMIN, lanes, u32, x < y ? x : y) X(PMAX, lanes, u32, x > y ? x : y)                          \
    X(PMIN, lanes, u64, x < y ? x : y) X(PMAX, lanes, u64, x > y ? x : y)                          \
    X(MULHI, lanes, i32, (int64_t)x * y >> 32) X(MULHI, lanes, u64, tci_mulhi_u64(x, y))           \
    X(MULHI, lanes, i64, tci_mulhi_u64((uint64_t)x, (uint64_t)y) - (x < 0 ? (uint64_t)y : 0) -     \
                             (y < 0 ? (uint64_t)x : 0))

#define TCI_IP_V(T) tci_v16_##T
#define TCI_ROW(prim, shape, T, expr) TCI_IP_##shape(base, prim##_##T, T, expr)
TCI_IP_COMMON_ROWS(TCI_ROW)
TCI_IP_BASE_ROWS(TCI_ROW)
TCI_IP_RARE_ROWS(TCI_ROW)
#undef TCI_ROW
#undef TCI_IP_V
#ifdef TCI_IP_HAS_AVX2
#define TCI_IP_V(T) tci_v32_##T
#define TCI_ROW(prim, shape, T, expr) TCI_IP_##shape(avx2, prim##_##T, T, expr)
TCI_IP_COMMON_ROWS(TCI_ROW)
TCI_IP_AVX2_ROWS(TCI_ROW)
#undef TCI_ROW
#undef TCI_IP_V
#endif

/* ---- ELEM loops ---- */

/* Conversions that wrap, extend, or round to nearest. Their one operand varies whenever the result
 * does. With AVX2 eight lanes at a time (arrays are padded). */
#define TCI_IP_convert(name, from, to)                                                             \
    TCI_IP_LOOP(base, name)                                                                        \
    {                                                                                              \
        tci_s_##to *r = out, *end = r + count;                                                     \
        const tci_s_##from *p = in[0];                                                             \
        (void)vary;                                                                                \
        while (r < end) {                                                                          \
            *r++ = (tci_s_##to)*p++;                                                               \
        }                                                                                          \
    }
#define TCI_IP_convert8(name, from, to)                                                            \
    TCI_IP_LOOP(avx2, name)                                                                        \
    {                                                                                              \
        tci_w_##to *r = out;                                                                       \
        const tci_w_##from *p = in[0];                                                             \
        (void)vary;                                                                                \
        for (int64_t i = 0; i < count; i += 8) {                                                   \
            *r++ = __builtin_convertvector(*p++, tci_w_##to);                                      \
        }                                                                                          \
    }
#define TCI_IP_HOT_CONVERT_ROWS(X)                                                                 \
    X(i32, f32) X(f32, f64) X(f64, f32) X(i32, i64) X(i64, i32) X(u32, u64) X(u8, u32) X(u8, f32)  \
    X(u16, u32) X(i8, i32) X(i8, i64) X(i32, i8) X(i64, i8)
#define TCI_IP_CONVERT_ROWS(X)                                                                     \
    X(u8, u16) X(u8, u64) X(u8, f64) X(u16, u64) X(u16, f32) X(u16, f64) X(u32, f32)               \
    X(u32, f64) X(u64, f32) X(u64, f64) X(i8, i16) X(i8, f32) X(i8, f64) X(i16, i8)                \
    X(i16, i32) X(i16, i64) X(i16, f32) X(i16, f64) X(i32, i16) X(i32, f64) X(i64, i16)            \
    X(i64, f32) X(i64, f64)
#define TCI_ROW(from, to) TCI_IP_convert(CAST_##from##_##to, from, to)
TCI_IP_HOT_CONVERT_ROWS(TCI_ROW)
TCI_IP_CONVERT_ROWS(TCI_ROW)
#undef TCI_ROW
TCI_IP_convert(TOINT_f32, f32, i32) TCI_IP_convert(TOINT_f64, f64, i64)
#ifdef TCI_IP_HAS_AVX2
#define TCI_ROW(from, to) TCI_IP_convert8(CAST_##from##_##to, from, to)
    TCI_IP_HOT_CONVERT_ROWS(TCI_ROW)
#undef TCI_ROW
        TCI_IP_convert8(TOINT_f32, f32, i32) TCI_IP_convert8(TOINT_f64, f64, i64)
#endif

/* Truncating conversions: CAST saturates and maps NaN to 0, TOINT knows its values in range. */
#define TCI_IP_saturate(from, to, min, past_max)                                                   \
    TCI_IP_LOOP(base, CAST_##from##_##to)                                                          \
    {                                                                                              \
        tci_s_##to *r = out;                                                                       \
        const tci_s_##from *p = in[0];                                                             \
        (void)vary;                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const tci_s_##from x = p[i];                                                           \
            r[i] = x >= (past_max) ? (tci_s_##to)((min) == 0 ? ~(uint64_t)0 : ~(uint64_t)(min))    \
                   : x > (min)     ? (tci_s_##to)x                                                 \
                   : x <= (min)    ? (tci_s_##to)(min)                                             \
                                   : (tci_s_##to)0;                                                \
        }                                                                                          \
    }
#define TCI_IP_SATURATE_ROWS(X)                                                                    \
    X(f32, u8, 0, 256.0f) X(f32, u16, 0, 65536.0f) X(f32, u32, 0, 4294967296.0f)                   \
    X(f32, u64, 0, 18446744073709551616.0f) X(f32, i8, INT8_MIN, 128.0f)                           \
    X(f32, i16, INT16_MIN, 32768.0f) X(f32, i32, INT32_MIN, 2147483648.0f)                         \
    X(f32, i64, INT64_MIN, 9223372036854775808.0f) X(f64, u8, 0, 256.0) X(f64, u16, 0, 65536.0)    \
    X(f64, u32, 0, 4294967296.0) X(f64, u64, 0, 18446744073709551616.0)                            \
    X(f64, i8, INT8_MIN, 128.0) X(f64, i16, INT16_MIN, 32768.0)                                    \
    X(f64, i32, INT32_MIN, 2147483648.0) X(f64, i64, INT64_MIN, 9223372036854775808.0)
#define TCI_ROW(from, to, min, past_max) TCI_IP_saturate(from, to, min, past_max)
            TCI_IP_SATURATE_ROWS(TCI_ROW)
#undef TCI_ROW

#define TCI_IP_pairs(name, T, expr) TCI_IP_scalar(base, name, T, 1, expr)
#define TCI_IP_UNSIGNED_DIV_ROWS(X, T) X(DIV, T, y == 0 ? 0 : x / y) X(REM, T, y == 0 ? 0 : x % y)
#define TCI_IP_SIGNED_DIV_ROWS(X, T, U)                                                            \
    X(DIV, T, y == 0 ? 0 : y == -1 ? (tci_s_##T)(0 - (tci_s_##U)x) : x / y)                        \
    X(REM, T, y == 0 || y == -1 ? 0 : x % y)
#define TCI_IP_PAIR_ROWS(X)                                                                        \
    TCI_IP_UNSIGNED_DIV_ROWS(X, u8) TCI_IP_UNSIGNED_DIV_ROWS(X, u16)                               \
    TCI_IP_UNSIGNED_DIV_ROWS(X, u32) TCI_IP_UNSIGNED_DIV_ROWS(X, u64)                              \
    TCI_IP_SIGNED_DIV_ROWS(X, i8, u8) TCI_IP_SIGNED_DIV_ROWS(X, i16, u16)                          \
    TCI_IP_SIGNED_DIV_ROWS(X, i32, u32) TCI_IP_SIGNED_DIV_ROWS(X, i64, u64)                        \
    X(REM, f32, fmodf(x, y)) X(REM, f64, fmod(x, y))
#define TCI_ROW(prim, T, expr) TCI_IP_pairs(prim##_##T, T, expr)
                TCI_IP_PAIR_ROWS(TCI_ROW)
#undef TCI_ROW

                    TCI_IP_LOOP(base, FROM_F16_u16)
{
    tci_s_f32 *r = out;
    const tci_s_u16 *p = in[0];
    (void)vary;
    for (int64_t i = 0; i < count; i++) {
        r[i] = tci_f16_bits_to_f32(p[i]);
    }
}

TCI_IP_LOOP(base, TO_F16_f32)
{
    tci_s_u16 *r = out;
    const tci_s_f32 *p = in[0];
    (void)vary;
    for (int64_t i = 0; i < count; i++) {
        r[i] = tci_f32_to_f16_bits(p[i]);
    }
}

TCI_QUICK_END

/* ---- the table ---- */

#define TCI_P_MAXIMUM TCI_IP_MAXIMUM
#define TCI_P_MINIMUM TCI_IP_MINIMUM
#define TCI_P_MULADD TCI_IP_MULADD
#ifdef TCI_IP_HAS_AVX2
#define TCI_IP_BEST(name) tci_interp_##name##_avx2
#else
#define TCI_IP_BEST(name) tci_interp_##name##_base
#endif
#define TCI_IP_ONLY(name) tci_interp_##name##_base
#define TCI_IP_ROW(prim, T, to, group, name, best)                                                 \
    {prim, TCI_IP_DT_##T, TCI_IP_DT_##to, group, tci_interp_##name##_base, best(name)},

static const tci_interp_loop_row tci_interp_loop_rows[] = {
#define TCI_ROW(prim, shape, T, expr)                                                              \
    TCI_IP_ROW(TCI_P_##prim, T, T, true, prim##_##T, TCI_IP_BEST)
    TCI_IP_COMMON_ROWS(TCI_ROW) TCI_IP_BASE_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(prim, shape, T, expr)                                                              \
    TCI_IP_ROW(TCI_P_##prim, T, T, true, prim##_##T, TCI_IP_ONLY)
        TCI_IP_RARE_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(from, to)                                                                          \
    TCI_IP_ROW(TCI_P_CAST, from, to, false, CAST_##from##_##to, TCI_IP_BEST)
            TCI_IP_HOT_CONVERT_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(from, to)                                                                          \
    TCI_IP_ROW(TCI_P_CAST, from, to, false, CAST_##from##_##to, TCI_IP_ONLY)
                TCI_IP_CONVERT_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(from, to, min, past_max)                                                           \
    TCI_IP_ROW(TCI_P_CAST, from, to, false, CAST_##from##_##to, TCI_IP_ONLY)
                    TCI_IP_SATURATE_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(prim, T, expr) TCI_IP_ROW(TCI_P_##prim, T, T, false, prim##_##T, TCI_IP_ONLY)
                        TCI_IP_PAIR_ROWS(TCI_ROW)
#undef TCI_ROW
                            TCI_IP_ROW(TCI_P_TOINT, f32, i32, false, TOINT_f32, TCI_IP_BEST)
                                TCI_IP_ROW(TCI_P_TOINT, f64, i64, false, TOINT_f64, TCI_IP_BEST)
                                    TCI_IP_ROW(TCI_IP_FROM_F16, u16, f32, false, FROM_F16_u16,
                                               TCI_IP_ONLY)
                                        TCI_IP_ROW(TCI_IP_TO_F16, f32, u16, false, TO_F16_f32,
                                                   TCI_IP_ONLY)};

#ifdef TCI_IP_HAS_AVX2
TCI_FN bool tci_interp_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
TCI_FN bool tci_interp_has_avx2(void)
{
    return false;
}
#endif

TCI_FN const tci_interp_loop_row *tci_interp_loop_table(int *n)
{
    *n = TCI_COUNT(tci_interp_loop_rows);
    return tci_interp_loop_rows;
}

#undef TCI_IP_DT_f32
#undef TCI_IP_DT_f64
#undef TCI_IP_DT_u8
#undef TCI_IP_DT_u16
#undef TCI_IP_DT_u32
#undef TCI_IP_DT_u64
#undef TCI_IP_DT_i8
#undef TCI_IP_DT_i16
#undef TCI_IP_DT_i32
#undef TCI_IP_DT_i64
#undef TCI_IP_HAS_AVX2
#undef TCI_IP_ATTR_avx2
#undef TCI_IP_ATTR_base
#undef TCI_IP_LOOP
#undef TCI_IP_OPERAND
#undef TCI_IP_STEP
#undef TCI_IP_unary
#undef TCI_IP_binary
#undef TCI_IP_ternary
#undef TCI_IP_scalar
#undef TCI_IP_lanes
#undef TCI_IP_PICK
#undef TCI_IP_SHIFT
#undef TCI_IP_SIGNED_SHIFT
#undef TCI_IP_COMMON_ROWS
#undef TCI_IP_ROUNDB16
#undef TCI_IP_ROUND16
#undef TCI_IP_ROUND16_TINY
#undef TCI_IP_ROUND16_USUAL
#undef TCI_IP_EXTREME
#undef TCI_IP_AVX2_ROWS
#undef TCI_IP_MULHI
#undef TCI_IP_EVEN
#undef TCI_IP_BASE_ROWS
#undef TCI_IP_SMALL_ROWS
#undef TCI_IP_RARE_ROWS
#undef TCI_IP_convert
#undef TCI_IP_convert8
#undef TCI_IP_HOT_CONVERT_ROWS
#undef TCI_IP_CONVERT_ROWS
#undef TCI_IP_saturate
#undef TCI_IP_SATURATE_ROWS
#undef TCI_IP_pairs
#undef TCI_IP_UNSIGNED_DIV_ROWS
#undef TCI_IP_SIGNED_DIV_ROWS
#undef TCI_IP_PAIR_ROWS
#undef TCI_P_MAXIMUM
#undef TCI_P_MINIMUM
#undef TCI_P_MULADD
#undef TCI_IP_BEST
#undef TCI_IP_ONLY
#undef TCI_IP_ROW

#else /* no vector types */

TCI_FN bool tci_interp_has_avx2(void)
{
    return false;
}

TCI_FN const tci_interp_loop_row *tci_interp_loop_table(int *n)
{
    *n = 0;
    return NULL;
}

#endif

/* The dtype under which a row that serves both signednesses, or any bits, is listed. */
static tc_dtype tci_interp_loop_dtype(int prim, tc_dtype t)
{
    switch (prim) {
    case TCI_P_AND:
    case TCI_P_OR:
    case TCI_P_XOR:
    case TCI_P_SELECT: return TC_U64;
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16: return TC_U32;
    case TCI_P_ADD:
    case TCI_P_SUB:
    case TCI_P_MUL:
    case TCI_P_EQ:
    case TCI_P_SHL:
    case TCI_IP_MULADD: return t >= TC_I8 && t <= TC_I64 ? (tc_dtype)(t - TC_I8 + TC_U8) : t;
    default: return t;
    }
}

TCI_FN const tci_interp_loop_row *tci_interp_loop_find(int prim, tc_dtype t, tc_dtype to)
{
    int n;
    const tci_interp_loop_row *rows = tci_interp_loop_table(&n);
    t = tci_interp_loop_dtype(prim, t);
    for (int i = 0; i < n; i++) {
        if (rows[i].prim == prim && rows[i].dtype == t &&
            (prim != TCI_P_CAST || rows[i].to == to)) {
            return &rows[i];
        }
    }
    return NULL;
}
