/* emit/c_fallbacks.c - provides software fallbacks in C: fma, square root, rounding, fmod.
 *
 * In: a name or a scalar prim. Out: its text in the dialect's definitions. gcc and clang use a
 * builtin if the processor has the instruction; the texts below #else are for tcc and plain
 * x86-64. Design of the long ones: split the mantissas, compute exactly in integers, round once.
 * Nothing here may call libgcc: no u64 <-> float conversion, as tcc has none of its own.
 *
 * fma of 16-byte vectors on x86-64 without FMA (x86-64-v2; the flags decide, so the same text also
 * serves machines with FMA) is bit-identical to the instruction:
 * - f32: the product is exact in f64, and the sum is rounded to f64, then to f32. Two roundings
 *   differ from one only if the f64 is halfway between two f32 (its low 29 bits are 1 0...0), or
 *   rounds to a subnormal, where halfway is at another bit. Vectors with one of these cases are
 *   computed again out of line: two-sum gives the error of the f64 sum, which is rounded to odd
 *   (S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums, 2008).
 * - f64: the same by Dekker's exact product of halves of 26 bits, cut by integer operations, two
 *   two-sums, and a third sum rounded to odd. It is exact where no part overflows or underflows;
 *   other vectors are computed lane by lane in integers.
 * gcc 12 compiles it to 33 instructions for 4 x f32 and 95 for 2 x f64, instead of one FMA. */
#include <string.h>

#include "c_templates.h"

typedef struct tci_c_dialect_soft_row {
    const char *name;
    const char *needs; /* another row, or NULL */
    const char *text;
} tci_c_dialect_soft_row;

#define TCI_C_DIALECT_HARD_FMA \
    "#if !defined(__TINYC__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || "               \
    "defined(__FP_FAST_FMA))\n"

static const tci_c_dialect_soft_row tci_c_dialect_soft_rows[] = {
    {"TC_MIX", NULL,
     "#if defined(__clang__)\n"
     "#define TC_MIX(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)\n"
     "#else\n#define TC_MIX(I, a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})\n#endif\n"},
    /* True of a builtin that the compiler has, in files that may be compiled with errno of math. */
    {"TC_BUILTIN", NULL,
     "#if defined(TC_ERRNO) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 10))\n"
     "#define TC_BUILTIN(x) __has_builtin(x)\n#else\n#define TC_BUILTIN(x) 0\n#endif\n"},
    /* A pointer as the type that a builtin declares, which differs between compilers: C++ converts
       no void pointer by itself. */
    {"TC_ANY", NULL,
     "#if defined(__cplusplus)\n"
     "struct tc_pointer {\n    const volatile void *p;\n"
     "    template <class T> operator T *() const { return (T *)p; }\n};\n"
     "#define TC_ANY(p) (tc_pointer{p})\n"
     "#else\n#define TC_ANY(p) ((void *)(p))\n#endif\n"},
    {"TC_INF", NULL,
     "#if defined(__TINYC__)\n"
     "#define TC_INF(sign) (sign 1.0 / 0.0)\n#define TC_INFf(sign) (sign 1.0f / 0.0f)\n"
     "#define TC_NAN (0.0 / 0.0)\n#define TC_NANf (0.0f / 0.0f)\n"
     "#else\n"
     "#define TC_INF(sign) (sign __builtin_inf())\n"
     "#define TC_INFf(sign) (sign __builtin_inff())\n"
     "#define TC_NAN __builtin_nan(\"\")\n#define TC_NANf __builtin_nanf(\"\")\n"
     "#endif\n"},
    /* Finite x that is not 0: |x| = m * 2^e with m in [2^52, 2^53). */
    {"tc_soft_split", NULL,
     "static void tc_soft_split(double x, unsigned long long *m, int *e) {\n"
     "    union { double d; unsigned long long u; } v;\n"
     "    int k;\n"
     "    v.d = x;\n"
     "    k = (int)(v.u >> 52) & 2047;\n"
     "    *m = v.u & 0xfffffffffffffULL;\n"
     "    if (k) {\n        *m |= 0x10000000000000ULL;\n    } else {\n        k = 1;\n    }\n"
     "    while (!(*m >> 52)) {\n        *m <<= 1;\n        k--;\n    }\n"
     "    *e = k - 1075;\n"
     "}\n"},
    /* The product is exact in double; the sum is rounded to odd, so that the last rounding is
       right. */
    {"TC_FMA_F32", NULL,
     TCI_C_DIALECT_HARD_FMA "#define TC_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)\n"
                            "#else\n"
                            "static float tc_soft_fma_f32(float a, float b, float c) {\n"
                            "    union { double d; unsigned long long u; } s;\n"
                            "    double p = (double)a * b;\n"
                            "    double z, e;\n"
                            "    s.d = p + c;\n"
                            "    z = s.d - p;\n"
                            "    e = (p - (s.d - z)) + (c - z);\n"
                            "    if (!(s.u & 1) && (e > 0 || e < 0)) {\n"
                            "        s.u += (e > 0) == (s.d > 0) ? 1ULL : ~0ULL;\n"
                            "    }\n"
                            "    return (float)s.d;\n"
                            "}\n"
                            "#define TC_FMA_F32(a, b, c) tc_soft_fma_f32(a, b, c)\n"
                            "#endif\n"},
    /* Product and addend as 128-bit integers of a common exponent; bits shifted out stay sticky in
       bit 0. */
    {"TC_FMA_F64", "tc_soft_split",
     TCI_C_DIALECT_HARD_FMA
     "#define TC_FMA_F64(a, b, c) __builtin_fma(a, b, c)\n"
     "#else\n"
     "typedef struct { unsigned long long hi, lo; } tc_soft_u128;\n"
     "static tc_soft_u128 tc_soft_shift(tc_soft_u128 x, int n) {\n"
     "    unsigned long long lost = 0;\n"
     "    if (n > 127) {\n"
     "        x.lo = (x.hi | x.lo) != 0;\n        x.hi = 0;\n        return x;\n    }\n"
     "    if (n > 63) {\n"
     "        lost = x.lo;\n        x.lo = x.hi;\n        x.hi = 0;\n        n -= 64;\n    }\n"
     "    if (n > 0) {\n"
     "        lost |= x.lo << (64 - n);\n"
     "        x.lo = x.lo >> n | x.hi << (64 - n);\n"
     "        x.hi >>= n;\n    }\n"
     "    x.lo |= lost != 0;\n"
     "    return x;\n"
     "}\n"
     "static double tc_soft_pack(int negative, tc_soft_u128 x, int e) {\n"
     "    union { double d; unsigned long long u; } v;\n"
     "    unsigned long long m, rest;\n"
     "    int k;\n"
     "    while (!(x.hi >> 63)) {\n"
     "        x.hi = x.hi << 1 | x.lo >> 63;\n        x.lo <<= 1;\n        e--;\n    }\n"
     "    e += 64;\n"       /* value = x.hi.lo * 2^e with 2^63 <= x.hi */
     "    k = -1085 - e;\n" /* how far below the normal numbers */
     "    if (k > 0) {\n        x = tc_soft_shift(x, k);\n        e += k;\n    }\n"
     "    m = x.hi >> 11;\n"
     "    rest = (x.hi & 2047) << 1 | (x.lo != 0);\n"
     "    m += rest > 2048 || (rest == 2048 && (m & 1));\n"
     "    if (e + 1085 > 2045) {\n        m = 0x7ff0000000000000ULL;\n        e = -1085;\n    }\n"
     "    v.u = ((unsigned long long)(e + 1085) << 52) + m;\n"
     "    v.u |= (unsigned long long)negative << 63;\n"
     "    return v.d;\n"
     "}\n"
     "static int tc_soft_sign(double x) {\n"
     "    union { double d; unsigned long long u; } v;\n    v.d = x;\n    return (int)(v.u >> "
     "63);\n}\n"
     "static double tc_soft_fma_f64(double a, double b, double c) {\n"
     "    unsigned long long ma, mb, mc, mid, low;\n"
     "    int ea, eb, ec, negative, other;\n"
     "    tc_soft_u128 p, q, t;\n"
     "    if (a - a == 0 && b - b == 0 && !(c - c == 0)) {\n"
     "        return c;\n    }\n" /* a * b alone might overflow */
     "    if (a == 0 || b == 0 || !(a - a == 0) || !(b - b == 0)) {\n"
     "        return a * b + c;\n    }\n"
     "    if (c == 0) {\n        return a * b;\n    }\n"
     "    tc_soft_split(a, &ma, &ea);\n"
     "    tc_soft_split(b, &mb, &eb);\n"
     "    tc_soft_split(c, &mc, &ec);\n"
     "    low = (ma & 0xffffffffULL) * (mb & 0xffffffffULL);\n"
     "    mid = (ma >> 32) * (mb & 0xffffffffULL) + (low >> 32);\n"
     "    p.hi = (ma >> 32) * (mb >> 32) + (mid >> 32);\n"
     "    mid = (mid & 0xffffffffULL) + (ma & 0xffffffffULL) * (mb >> 32);\n"
     "    p.hi += mid >> 32;\n"
     "    p.lo = mid << 32 | (low & 0xffffffffULL);\n"
     "    p.hi = p.hi << 20 | p.lo >> 44;\n"
     "    p.lo <<= 20;\n"
     "    ea += eb - 20;\n"
     "    q.hi = mc << 9;\n"
     "    q.lo = 0;\n"
     "    ec -= 73;\n"
     "    if (ea > ec) {\n        q = tc_soft_shift(q, ea - ec);\n"
     "    } else {\n        p = tc_soft_shift(p, ec - ea);\n        ea = ec;\n    }\n"
     "    negative = tc_soft_sign(a) ^ tc_soft_sign(b);\n"
     "    other = tc_soft_sign(c);\n"
     "    if (negative == other) {\n"
     "        t.lo = p.lo + q.lo;\n"
     "        t.hi = p.hi + q.hi + (t.lo < p.lo);\n"
     "        return tc_soft_pack(negative, t, ea);\n    }\n"
     "    if (p.hi < q.hi || (p.hi == q.hi && p.lo < q.lo)) {\n"
     "        t = p;\n        p = q;\n        q = t;\n        negative = other;\n    }\n"
     "    t.lo = p.lo - q.lo;\n"
     "    t.hi = p.hi - q.hi - (p.lo < q.lo);\n"
     "    return (t.hi | t.lo) ? tc_soft_pack(negative, t, ea) : 0.0;\n"
     "}\n"
     "#define TC_FMA_F64(a, b, c) tc_soft_fma_f64(a, b, c)\n"
     "#endif\n"},
    /* a + b rounded to odd. Infinities and NaN stay as they are. */
    {"tc_soft_odd", NULL,
     "#if defined(__SSE4_1__) && !defined(__FMA__)\n"
     "TC_I tc_f64x2 tc_soft_odd(tc_f64x2 a, tc_f64x2 b) {\n"
     "    tc_f64x2 s = a + b, t = s - a, e = (a - (s - t)) + (b - t);\n"
     "    tc_i64x2 below = (tc_i64x2)(((tc_i64x2)e ^ (tc_i64x2)s) < 0);\n"
     "    tc_i64x2 inexact = (tc_i64x2)(e < 0) | (tc_i64x2)(e > 0);\n"
     "    return (tc_f64x2)((tc_i64x2)s + ((below | 1) & inexact & (((tc_i64x2)s & 1) - 1)));\n"
     "}\n"
     "#endif\n"},
    /* Words 0 of l and h are the low halves of the four sums. Twice the high half has no sign; a
       zero is above all others then, so `far` is what is below 2^-126 and not zero. */
    {"tc_soft_fma_f32x4", "tc_soft_odd",
     "#if defined(__SSE4_1__) && !defined(__FMA__)\n"
     "#if defined(__clang__)\n"
     "#define tc_soft_half(a, i) \\\n"
     "    __builtin_convertvector(__builtin_shufflevector(a, a, i, i + 1), tc_f64x2)\n"
     "#define tc_soft_join(l, h) \\\n"
     "    __builtin_convertvector(__builtin_shufflevector(l, h, 0, 1, 2, 3), tc_f32x4)\n"
     "#define tc_soft_words(l, h, i) \\\n"
     "    __builtin_shufflevector((tc_i32x4)(l), (tc_i32x4)(h), i, i + 2, i + 4, i + 6)\n"
     "#else\n"
     "#define tc_soft_half(a, i) \\\n"
     "    __builtin_ia32_cvtps2pd((i) ? __builtin_ia32_movhlps(a, a) : (a))\n"
     "#define tc_soft_join(l, h) \\\n"
     "    __builtin_ia32_movlhps(__builtin_ia32_cvtpd2ps(l), __builtin_ia32_cvtpd2ps(h))\n"
     "#define tc_soft_words(l, h, i) \\\n"
     "    __builtin_shuffle((tc_i32x4)(l), (tc_i32x4)(h), (tc_i32x4){i, i + 2, i + 4, i + 6})\n"
     "#endif\n"
     "static __attribute__((noinline)) tc_f32x4 tc_soft_fma_f32x4_far(\n"
     "    tc_f32x4 a, tc_f32x4 b, tc_f32x4 c) {\n"
     "    return tc_soft_join(\n"
     "        tc_soft_odd(tc_soft_half(a, 0) * tc_soft_half(b, 0), tc_soft_half(c, 0)),\n"
     "        tc_soft_odd(tc_soft_half(a, 2) * tc_soft_half(b, 2), tc_soft_half(c, 2)));\n"
     "}\n"
     "TC_I tc_f32x4 tc_soft_fma_f32x4(tc_f32x4 a, tc_f32x4 b, tc_f32x4 c) {\n"
     "    tc_f64x2 l = tc_soft_half(a, 0) * tc_soft_half(b, 0) + tc_soft_half(c, 0);\n"
     "    tc_f64x2 h = tc_soft_half(a, 2) * tc_soft_half(b, 2) + tc_soft_half(c, 2);\n"
     "    tc_i32x4 low = tc_soft_words(l, h, 0), top = tc_soft_words(l, h, 1);\n"
     "    tc_i64x2 far = (tc_i64x2)((low & 0x1fffffff) == 0x10000000) |\n"
     "                   (tc_i64x2)((top + top + 0x7fffffff) < -0xfe00001);\n"
     "    if (__builtin_expect(!__builtin_ia32_ptestz128(far, far), 0)) {\n"
     "        return tc_soft_fma_f32x4_far(a, b, c);\n"
     "    }\n"
     "    return tc_soft_join(l, h);\n"
     "}\n"
     "#endif\n"},
    /* Where the result is zero, the product is exact, and p + c has the sign. */
    {"tc_soft_fma_f64x2", "tc_soft_odd",
     "#if defined(__SSE4_1__) && !defined(__FMA__)\n"
     "static __attribute__((noinline)) tc_f64x2 tc_soft_fma_f64x2_far(\n"
     "    tc_f64x2 a, tc_f64x2 b, tc_f64x2 c) {\n"
     "    return (tc_f64x2){TC_FMA_F64(a[0], b[0], c[0]), TC_FMA_F64(a[1], b[1], c[1])};\n"
     "}\n"
     "#define tc_soft_abs(a) ((tc_f64x2)((tc_i64x2)(a) & 0x7fffffffffffffffLL))\n"
     "TC_I tc_f64x2 tc_soft_fma_f64x2(tc_f64x2 a, tc_f64x2 b, tc_f64x2 c) {\n"
     "    tc_f64x2 p = a * b, x = tc_soft_abs(a), y = tc_soft_abs(b), size = tc_soft_abs(p);\n"
     "    tc_i64x2 near = (tc_i64x2)(x + y + tc_soft_abs(c) + size < 0x1p1000) &\n"
     "                    ((tc_i64x2)(size > 0x1p-900) |\n"
     "                     (tc_i64x2)(__builtin_ia32_minpd(x, y) == 0));\n"
     "    tc_f64x2 ah = (tc_f64x2)(((tc_i64x2)a + 0x4000000) & ~0x7ffffffLL), al = a - ah;\n"
     "    tc_f64x2 bh = (tc_f64x2)(((tc_i64x2)b + 0x4000000) & ~0x7ffffffLL), bl = b - bh;\n"
     "    tc_f64x2 pl = al * bl - (((p - ah * bh) - al * bh) - ah * bl);\n"
     "    tc_f64x2 t = c + pl, u = t - c, tl = (c - (t - u)) + (pl - u);\n"
     "    tc_f64x2 v = p + t, w = v - p, vl = (p - (v - w)) + (t - w);\n"
     "    tc_f64x2 r = v + tc_soft_odd(tl, vl);\n"
     "    tc_i64x2 zero = (tc_i64x2)(r == 0);\n"
     "    if (__builtin_expect(!__builtin_ia32_ptestc128(near, ~(tc_i64x2){0}), 0)) {\n"
     "        return tc_soft_fma_f64x2_far(a, b, c);\n"
     "    }\n"
     "    return (tc_f64x2)(((tc_i64x2)(p + c) & zero) | ((tc_i64x2)r & ~zero));\n"
     "}\n"
     "#endif\n"},
    /* Two bits of the radicand give one of the root: 54 of them, the last for rounding. It cannot
       be a tie. */
    {"tc_soft_sqrt", "tc_soft_split",
     "static double tc_soft_sqrt(double x) {\n"
     "    union { double d; unsigned long long u; } v;\n"
     "    unsigned long long m, root = 0, rest = 0;\n"
     "    int e, i;\n"
     "    if (x == 0 || !(x - x == 0) || x < 0) {\n"
     "        return x > 0 || x == 0 ? x : (x - x) / (x - x);\n    }\n"
     "    tc_soft_split(x, &m, &e);\n"
     "    if (e & 1) {\n        m <<= 1;\n        e--;\n    }\n"
     "    for (i = 52; i >= -54; i -= 2) {\n"
     "        rest = rest << 2 | (i >= 0 ? m >> i & 3 : 0);\n"
     "        root <<= 1;\n"
     "        if (rest > root * 2) {\n            rest -= root * 2 + 1;\n            root++;\n     "
     "   }\n"
     "    }\n"
     "    root = (root >> 1) + (root & 1);\n"
     "    v.u = ((unsigned long long)(e / 2 + 1048) << 52) + root;\n"
     "    return v.d;\n"
     "}\n"},
    /* A quotient below 2^52 is off by at most one when truncated, and then both remainders are
     * exact. Else long division, which has no rounding at all. */
    {"tc_soft_rem", "TC_FMA_F64",
     "static double tc_soft_rem(double a, double b) {\n"
     "    union { double d; unsigned long long u; } v, w;\n"
     "    unsigned long long x, y;\n"
     "    double q;\n"
     "    int ex, ey;\n"
     "    v.d = a;\n"
     "    w.d = b;\n"
     "    if (b == 0 || b != b || !(a - a == 0)) {\n        return (a * b) / (a * b);\n    }\n"
     "    if ((v.u << 1) < (w.u << 1) || a == 0) {\n        return a;\n    }\n"
     "    q = a / b;\n"
     "    if (q < 0x1p52 && q > -0x1p52) {\n"
     "        q = (double)(long long)q;\n"
     "        w.d = TC_FMA_F64(-q, b, a);\n"
     "        if (a < 0 ? w.d > 0 : w.d < 0) {\n"
     "            w.d += (a < 0) == (b < 0) ? b : -b;\n"
     "        }\n"
     "        w.u = (w.u << 1 >> 1) | (v.u & 0x8000000000000000ULL);\n"
     "        return w.d;\n    }\n"
     "    tc_soft_split(a, &x, &ex);\n"
     "    tc_soft_split(b, &y, &ey);\n"
     "    for (; ex > ey; ex--) {\n"
     "        x = (x >= y ? x - y : x) << 1;\n    }\n"
     "    x = x >= y ? x - y : x;\n"
     "    while (x && !(x >> 52) && ey > -1074) {\n        x <<= 1;\n        ey--;\n    }\n"
     "    while (ey < -1074) {\n        x >>= 1;\n        ey++;\n    }\n"
     "    w.u = x ? ((unsigned long long)(ey + 1074) << 52) + x : 0;\n"
     "    w.u |= v.u & 0x8000000000000000ULL;\n"
     "    return w.d;\n"
     "}\n"},
};

TCI_FN void tci_c_dialect_soft(tci_c_dialect *cd, const char *name)
{
    bool is_new;
    tci_c_dialect_intern(cd, name, &is_new);
    for (int i = 0; is_new && i < TCI_COUNT(tci_c_dialect_soft_rows); i++) {
        const tci_c_dialect_soft_row *r = &tci_c_dialect_soft_rows[i];
        if (strcmp(r->name, name) == 0) {
            if (r->needs) {
                tci_c_dialect_soft(cd, r->needs);
            }
            tci_str_add(&cd->out, r->text);
        }
    }
}

TCI_FN const char *tci_c_dialect_soft_fma(tci_c_dialect *cd, tc_dtype t)
{
    const char *name = t == TC_F32 ? "tc_soft_fma_f32x4" : "tc_soft_fma_f64x2";
    cd->d.type(&cd->d, TC_F32, 4);
    cd->d.type(&cd->d, TC_I32, 4);
    cd->d.type(&cd->d, TC_F64, 2);
    cd->d.type(&cd->d, TC_I64, 2);
    tci_c_dialect_soft(cd, "TC_FMA_F64");
    tci_c_dialect_soft(cd, name);
    return name;
}

/* Rounding to an integral float: $1 the builtin, $2 plain C that makes r from a. From $3 on every
 * float is integral; a * 0 is the zero of a's sign. */
static void tci_c_dialect_define_round(const tci_c_dialect_env *e, tci_prim p)
{
    static const char truncated[] = "r = ($T)(long long)a;";
    tci_c_dialect_env round = *e;
    round.piece[2] = e->t == TC_F32 ? "0x1p23f" : "0x1p52";
    switch (p) {
    case TCI_P_FLOOR:
        round.piece[0] = "floor";
        round.piece[1] = "r = ($T)(long long)a;\n    r = r > a ? r - 1 : r;";
        break;
    case TCI_P_CEIL:
        round.piece[0] = "ceil";
        round.piece[1] = "r = ($T)(long long)a;\n    r = r < a ? r + 1 : r;";
        break;
    case TCI_P_TRUNC:
        round.piece[0] = "trunc";
        round.piece[1] = truncated;
        break;
    default:
        round.piece[0] = "rint";
        round.piece[1] = "r = a >= 0 ? (a + $3) - $3 : (a - $3) + $3;";
        break;
    }
    tci_c_dialect_define(
        &round, "#if !defined(__TINYC__) && (defined(__SSE4_1__) || defined(__aarch64__))\n"
                "#define $n(a) __builtin_$1$f(a)\n"
                "#else\n"
                "static $T $n($T a) {\n    $T r;\n"
                "    if (!(a < $3 && a > -$3)) {\n        return a;\n    }\n"
                "    $2\n    return r == 0 ? a * 0 : r;\n}\n"
                "#endif");
}

/* Without -fno-math-errno compilers make __builtin_sqrt a call of libm's sqrt for negative
 * operands, and no pragma of gcc or clang turns that off. TC_ERRNO says that the flag may be
 * missing (exported files): there a builtin that sets no errno is taken, or, where the compiler has
 * none, the integer root. All have the same bits. */
static void tci_c_dialect_define_sqrt(const tci_c_dialect_env *e)
{
    tci_c_dialect_env root = *e;
    root.piece[0] = e->t == TC_F32 ? "ss" : "sd";
    root.piece[1] = e->t == TC_F32 ? "v2sf" : "df";
    root.piece[2] = e->t == TC_F32 ? "(($E __attribute__((vector_size(8)))){a, a})[0]" : "(a)";
    tci_c_dialect_soft(e->cd,
                       "tc_soft_sqrt"); /* also right for f32: 53 bits are more than 2 * 24 + 1 */
    tci_c_dialect_soft(e->cd, "TC_BUILTIN");
    tci_c_dialect_define(&root, "#if TC_BUILTIN(__builtin_elementwise_sqrt)\n"
                                "#define $n(a) __builtin_elementwise_sqrt(a)\n"
                                "#elif defined(__SSE2__) && TC_BUILTIN(__builtin_ia32_sqrt$1)\n"
                                "#define $n(a) (__builtin_ia32_sqrt$1(($E __attribute__("
                                "(vector_size(16)))){a})[0])\n"
                                "#elif TC_BUILTIN(__builtin_aarch64_sqrt$2)\n"
                                "#define $n(a) __builtin_aarch64_sqrt$2$3\n"
                                "#elif defined(__TINYC__) || defined(TC_ERRNO)\n"
                                "#define $n(a) (($T)tc_soft_sqrt(a))\n"
                                "#else\n#define $n(a) __builtin_sqrt$f(a)\n#endif");
}

TCI_FN void tci_c_dialect_define_soft(const tci_c_dialect_env *e, tci_prim p)
{
    tci_c_dialect *cd = e->cd;
    switch (p) {
    case TCI_P_FMA:
        tci_c_dialect_soft(cd, e->t == TC_F32 ? "TC_FMA_F32" : "TC_FMA_F64");
        tci_c_dialect_define(e, "#define $n(a, b, c) TC_FMA_$C(a, b, c)");
        break;
    case TCI_P_SQRT: tci_c_dialect_define_sqrt(e); break;
    case TCI_P_REM:
        tci_c_dialect_soft(cd, "tc_soft_rem"); /* a remainder of two f32 is an f32 */
        tci_c_dialect_define(e, "#define $n(a, b) (($T)tc_soft_rem(a, b))");
        break;
    case TCI_P_ABS:
        tci_c_dialect_define(e, "#if defined(__TINYC__)\n"
                                "static $T $n($T a) {\n    union { $T a; $V u; } v;\n    v.a = a;\n"
                                "    v.u = v.u << 1 >> 1;\n    return v.a;\n}\n"
                                "#else\n#define $n(a) __builtin_fabs$f(a)\n#endif");
        break;
    case TCI_P_ROUNDB16:
        tci_c_dialect_define(e,
                             "TC_I $T $n($T a) {\n    union { $T a; $V u; } v;\n    v.a = a;\n"
                             "    v.u = a == a ? (v.u + 0x7fff + (v.u >> 16 & 1)) & 0xffff0000u\n"
                             "                 : 0x7fc00000;\n"
                             "    return v.a;\n}");
        break;
    default: tci_c_dialect_define_round(e, p); break;
    }
}
#undef TCI_C_DIALECT_HARD_FMA
