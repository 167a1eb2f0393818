/* tc_cpu.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_cpu.h ---- */
/* src/tc_cpu.h - root of the CPU backend: C source by the system compiler. Brought in by tc.h. */
/* ---- src/cpu/target.c ---- */
/* cpu/target.c - what the processor offers to this process, and the compiler flags that follow from
 * it.
 *
 * In: the vector width that was asked for. Out: a tci_target.
 * The one idea: ask from inside the process. __builtin_cpu_supports reads CPUID and the register
 * state that the operating system saves (XCR0), so the answer is right under valgrind and
 * emulators, where -march=native would name what the machine has and the process may not use. A
 * host without that builtin, or on a processor that is not known here, gets scalar code of plain C.
 * Invariant: flags and features are a function of (arch, vector_bytes, has_fma), never of the
 * model. */
#include <stdio.h>
#include <string.h>


typedef struct tci_cpu_level {
    int vector_bytes;
    const char *features;
    const char *flags[8];
} tci_cpu_level;

/* Widest first. Every processor with AVX2 has F16C and FMA, but FMA is asked for all the same. */
static const tci_cpu_level tci_cpu_levels[] = {
    {64,
     "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c",
     {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c",
      "-mprefer-vector-width=512"}},
    {32, "avx2,fma,f16c", {"-mavx2", "-mfma", "-mf16c"}},
    {16, "avx,fma", {"-mavx", "-mfma"}},
};

/* Widest vector that the process may use, in bytes; 0: none with fma. */
static int tci_cpu_widest(void)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("fma")) {
        return 0;
    }
    if (!__builtin_cpu_supports("avx2")) {
        return 16;
    }
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                  && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? 64 : 32;
#elif defined(__aarch64__)
    return 16;
#else
    return 0;
#endif
}

/* Scalar code (vector_bits -1) keeps the flags of the machine's own level up to AVX2: fma needs
 * them. */
TCI_FN void tci_target_detect(tci_target *t, int vector_bits)
{
    memset(t, 0, sizeof *t);
    int widest = tci_cpu_widest();
    t->has_fma = widest > 0;
    t->vector_bytes = vector_bits > 0   ? TCI_MIN(widest, vector_bits / 8)
                      : vector_bits < 0 ? 0
                                        : widest;
#if defined(__aarch64__)
    snprintf(t->arch, sizeof t->arch, "aarch64");
    t->vector_bytes = t->vector_bytes >= 16 ? 16 : 0;
    snprintf(t->features, sizeof t->features, "neon,fma vector=%d", t->vector_bytes);
#else
    snprintf(t->arch, sizeof t->arch, "%s", t->has_fma ? "x86-64" : "c");
    int level_bytes = t->vector_bytes ? t->vector_bytes : TCI_MIN(widest, 32);
    const char *features = "none";
    for (int i = 0; i < TCI_COUNT(tci_cpu_levels); i++) {
        const tci_cpu_level *level = &tci_cpu_levels[i];
        if (level->vector_bytes > level_bytes || t->n_flags) {
            continue;
        }
        features = level->features;
        t->vector_bytes = t->vector_bytes ? level->vector_bytes : 0;
        t->avx512 = level->vector_bytes == 64;
        t->avx2 = level->vector_bytes >= 32;
        for (int k = 0; k < TCI_COUNT(level->flags) && level->flags[k]; k++) {
            t->flags[t->n_flags++] = level->flags[k];
        }
    }
    if (!t->n_flags) {
        t->vector_bytes = 0;
    }
    snprintf(t->features, sizeof t->features, "%s vector=%d", features, t->vector_bytes);
#endif
}
/* ---- src/cpu/soft.c ---- */
/* cpu/soft.c - plain C for what some compiler or processor lacks: fma, square root, rounding, fmod.
 *
 * In: a name or a scalar prim. Out: its text in the dialect's definitions. gcc and clang for a
 * processor with the instruction take a builtin; the texts below #else are what tcc and plain
 * x86-64 compile. The one idea of the long ones: take the mantissas apart, compute exactly in
 * integers, round once. Nothing here may call libgcc: no u64 <-> float conversion, as tcc has none
 * of its own. */
#include <string.h>

/* ---- src/cpu/spell.h ---- */
/* cpu/spell.h - what the rooms of the C dialect share: the requests made so far, and templates.
 *
 * Letters of a template (tci_cd_define): $T the type, $E its element, $A the type unaligned, $I $U
 * the signed and unsigned integer vector of the same shape, $V the unsigned integer of an element's
 * size, $B the mask, $R the result type, $L lanes, $W bits of an element, $f the suffix f of f32
 * names, $C F32 or F64, $n the name being defined, $1..$4 pieces, which are templates too; @x the
 * BASE prim x on the same type, @@x on its element; {v16si} a vector type as x86 builtins declare
 * it. */
#ifndef TCI_CPU_SPELL_H
#define TCI_CPU_SPELL_H


typedef struct tci_cd {
    tci_dialect d;          /* what the caller holds; d.state is this struct */
    const char **names;     /* open-addressed set of defined names; NULL = free */
    int n_names, cap_names; /* cap a power of two, never more than half full */
    tci_str out;            /* complete definitions */
    const void *more;       /* of a dialect that extends this one */
} tci_cd;

/* What the letters stand for. */
typedef struct tci_cd_env {
    tci_cd *cd;
    tc_dtype t, to;
    int lanes;
    const char *name;
    const char *piece[4];
} tci_cd_env;

/* ---- cpu/dialect.c ---- */
/* The stable copy of a name; *is_new: it was unknown, and the caller now defines it. */
TCI_FN const char *tci_cd_intern(tci_cd *cd, const char *name, bool *is_new);
TCI_FN void tci_cd_define(const tci_cd_env *e, const char *text);
/* "f, f, ..." n times, with # replaced by i * step % modulo. */
TCI_FN const char *tci_cd_list(tci_cd *cd, int n, const char *format, int step, int modulo);
TCI_FN tc_dtype tci_cd_sint(int bytes);
TCI_FN tc_dtype tci_cd_uint(int bytes);
TCI_FN tc_dtype tci_cd_mask_dtype(const tci_cd *cd, int lanes);
TCI_FN const char *tci_cd_suffix(tci_cd *cd, tc_dtype t, int lanes); /* "f32x16" */
TCI_FN const char *tci_cd_unaligned(tci_cd *cd, tc_dtype t, int lanes);

/* ---- cpu/prims.c ---- */
TCI_FN void tci_cd_define_base(const tci_cd_env *e, tci_prim p);
/* The vector `a` of `bytes` as an x86 register of at least 16 bytes; the rest of it is anything. */
TCI_FN const char *tci_cd_to_register(int bytes);
/* The low `bytes` of a register expression, as the template's $R. */
TCI_FN const char *tci_cd_from_register(tci_cd *cd, int bytes, const char *expression);
/* Name of the vector conversion of numbers that `to` can hold (integers wrap). */
TCI_FN const char *tci_cd_convert(tci_cd *cd, tc_dtype from, tc_dtype to, int lanes);
/* Name of: integer vector of 0 / -1 in the shape of t -> mask, and back. */
TCI_FN const char *tci_cd_to_mask(tci_cd *cd, tc_dtype t, int lanes);
TCI_FN const char *tci_cd_of_mask(tci_cd *cd, tc_dtype t, int lanes);

/* Name of: (x, y, a, b) -> a where x compares to y, else b; t is x's dtype, to is a's. NULL where
 * compare and SELECT do as well. */
TCI_FN const char *tci_cd_pick(tci_cd *cd, tci_prim compare, tc_dtype t, tc_dtype to, int lanes);

/* ---- cpu/memory.c ---- */
TCI_FN const char *tci_cd_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                              int lanes);
/* Names: storage bits (u16, u8) -> compute value; compute value -> storage bits, rounded; any lane
 * true. */
TCI_FN const char *tci_cd_widen(tci_cd *cd, tc_dtype compute, tc_dtype storage, int lanes);
TCI_FN const char *tci_cd_narrow(tci_cd *cd, tc_dtype compute, tc_dtype storage, int lanes);
TCI_FN const char *tci_cd_any(tci_cd *cd, int lanes);
/* Name of: a < b in any lane. */
TCI_FN const char *tci_cd_any_less(tci_cd *cd, tc_dtype t, int lanes);

/* ---- cpu/soft.c ---- */
TCI_FN void tci_cd_soft(tci_cd *cd,
                        const char *name); /* defines one of its texts and what it needs */
TCI_FN void tci_cd_define_soft(const tci_cd_env *e,
                               tci_prim p); /* scalar prims without an operator */

#endif

/* ---- src/cpu/soft.c, continued ---- */
typedef struct tci_cd_soft_row {
    const char *name;
    const char *needs; /* another row, or NULL */
    const char *text;
} tci_cd_soft_row;

#define TCI_CD_HARD_FMA                                                                            \
    "#if !defined(__TINYC__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || "               \
    "defined(__FP_FAST_FMA))\n"

static const tci_cd_soft_row tci_cd_soft_rows[] = {
    {"TC_MIX", NULL,
     "#if defined(__clang__)\n"
     "#define TC_MIX(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)\n"
     "#else\n#define TC_MIX(I, a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})\n#endif\n"},
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
     TCI_CD_HARD_FMA "#define TC_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)\n"
                     "#else\n"
                     "static float tc_soft_fma_f32(float a, float b, float c) {\n"
                     "    union { double d; unsigned long long u; } s;\n"
                     "    double p = (double)a * b;\n"
                     "    double z, e;\n"
                     "    s.d = p + c;\n"
                     "    z = s.d - p;\n"
                     "    e = (p - (s.d - z)) + (c - z);\n"
                     "    if (!(s.u & 1) && (e > 0 || e < 0)) {\n"
                     "        s.u += (e > 0) == (s.d > 0) ? 1 : -1;\n"
                     "    }\n"
                     "    return (float)s.d;\n"
                     "}\n"
                     "#define TC_FMA_F32(a, b, c) tc_soft_fma_f32(a, b, c)\n"
                     "#endif\n"},
    /* Product and addend as 128-bit integers of a common exponent; bits shifted out stay sticky in
       bit 0. */
    {"TC_FMA_F64", "tc_soft_split",
     TCI_CD_HARD_FMA
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
     "            w.d += a < 0 == b < 0 ? b : -b;\n"
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

TCI_FN void tci_cd_soft(tci_cd *cd, const char *name)
{
    bool is_new;
    tci_cd_intern(cd, name, &is_new);
    for (int i = 0; is_new && i < TCI_COUNT(tci_cd_soft_rows); i++) {
        const tci_cd_soft_row *r = &tci_cd_soft_rows[i];
        if (strcmp(r->name, name) == 0) {
            if (r->needs) {
                tci_cd_soft(cd, r->needs);
            }
            tci_str_add(&cd->out, r->text);
        }
    }
}

/* Rounding to an integral float: $1 the builtin, $2 plain C that makes r from a. From $3 on every
 * float is integral; a * 0 is the zero of a's sign. */
static void tci_cd_define_round(const tci_cd_env *e, tci_prim p)
{
    static const char truncated[] = "r = ($T)(long long)a;";
    tci_cd_env round = *e;
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
    tci_cd_define(&round,
                  "#if !defined(__TINYC__) && (defined(__SSE4_1__) || defined(__aarch64__))\n"
                  "#define $n(a) __builtin_$1$f(a)\n"
                  "#else\n"
                  "static $T $n($T a) {\n    $T r;\n"
                  "    if (!(a < $3 && a > -$3)) {\n        return a;\n    }\n"
                  "    $2\n    return r == 0 ? a * 0 : r;\n}\n"
                  "#endif");
}

TCI_FN void tci_cd_define_soft(const tci_cd_env *e, tci_prim p)
{
    tci_cd *cd = e->cd;
    switch (p) {
    case TCI_P_FMA:
        tci_cd_soft(cd, e->t == TC_F32 ? "TC_FMA_F32" : "TC_FMA_F64");
        tci_cd_define(e, "#define $n(a, b, c) TC_FMA_$C(a, b, c)");
        break;
    case TCI_P_SQRT:
        tci_cd_soft(cd, "tc_soft_sqrt"); /* also right for f32: 53 bits are more than 2 * 24 + 1 */
        tci_cd_define(e, "#if defined(__TINYC__)\n#define $n(a) (($T)tc_soft_sqrt(a))\n"
                         "#else\n#define $n(a) __builtin_sqrt$f(a)\n#endif");
        break;
    case TCI_P_REM:
        tci_cd_soft(cd, "tc_soft_rem"); /* a remainder of two f32 is an f32 */
        tci_cd_define(e, "#define $n(a, b) (($T)tc_soft_rem(a, b))");
        break;
    case TCI_P_ABS:
        tci_cd_define(e, "#if defined(__TINYC__)\n"
                         "static $T $n($T a) {\n    union { $T a; $V u; } v;\n    v.a = a;\n"
                         "    v.u = v.u << 1 >> 1;\n    return v.a;\n}\n"
                         "#else\n#define $n(a) __builtin_fabs$f(a)\n#endif");
        break;
    case TCI_P_ROUNDB16:
        tci_cd_define(e, "TC_I $T $n($T a) {\n    union { $T a; $V u; } v;\n    v.a = a;\n"
                         "    if (a == a) {\n        v.u = (v.u + 0x7fff + (v.u >> 16 & 1)) & "
                         "0xffff0000u;\n    }\n"
                         "    return v.a;\n}");
        break;
    default:
        tci_cd_define_round(e, p);
        break;
    }
}
#undef TCI_CD_HARD_FMA
/* ---- src/cpu/memory.c ---- */
/* cpu/memory.c - memory accesses and lane moves of the C dialect (rows of tci_mem, emit/dialect.h).
 *
 * In: a row, the compute dtype, the storage dtype, lanes. Out: the name of its definition.
 * The one idea: an access is spelled for the bits in memory (u16 for f16 and bf16, u8 for bool,
 * else the dtype itself), and `widen` and `narrow` turn those bits into compute values and back.
 * Partial accesses never touch what lies beyond: masked instructions on AVX-512 and, for 4- and
 * 8-byte elements, on AVX2; elsewhere n is taken apart into powers of two (a loop would be
 * recognised as memcpy, which generated code does not have), or the lanes are done one by one. */
#include <string.h>


/* ---- storage bits <-> compute values ---- */

static tc_dtype tci_cd_storage_bits(tc_dtype storage)
{
    return storage == TC_BOOL ? TC_U8 : tci_dtype_is_half(storage) ? TC_U16 : storage;
}

/* On aarch64 compilers make one instruction of these, also on vectors. */
static const char tci_cd_f16_widen[] =
    "#if defined(__aarch64__) && !defined(__TINYC__)\n"
    "TC_I $R $n($T h) { union { $T u; __fp16 h; } v; v.u = h; return ($R)v.h; }\n"
    "#else\n"
    "TC_I $R $n($T h) {\n"
    "    union { $R f; unsigned u; } v;\n"
    "    unsigned mag = h & 0x7fff;\n"
    "    if (mag < 0x400) {\n"
    "        v.f = (float)(int)mag * 0x1p-24f;\n"
    "    } else {\n"
    "        v.u = (mag << 13) + (mag >= 0x7c00 ? 0x70000000 : 0x38000000);\n"
    "    }\n"
    "    v.u |= (unsigned)(h & 0x8000) << 16;\n"
    "    return v.f;\n"
    "}\n#endif";

/* A subnormal result is what adding 0.5 leaves below: 0.5 has units of 2^-24, as f16 there. */
static const char tci_cd_f16_narrow[] =
    "#if defined(__aarch64__) && !defined(__TINYC__)\n"
    "TC_I $R $n($T x) { union { $R u; __fp16 h; } v; v.h = (__fp16)x; return v.u; }\n"
    "#else\n"
    "TC_I $R $n($T x) {\n"
    "    union { $T f; unsigned u; } v;\n"
    "    unsigned sign, mag;\n"
    "    v.f = x;\n"
    "    sign = v.u >> 16 & 0x8000;\n"
    "    mag = v.u & 0x7fffffff;\n"
    "    if (mag > 0x7f800000) {\n"
    "        return ($R)(sign | 0x7e00);\n"
    "    }\n"
    "    if (mag >= 0x477ff000) {\n"
    "        return ($R)(sign | 0x7c00);\n"
    "    }\n"
    "    if (mag < 0x38800000) {\n"
    "        v.u = mag;\n"
    "        v.f += 0.5f;\n"
    "        return ($R)(sign | (v.u - 0x3f000000));\n"
    "    }\n"
    "    return ($R)(sign | (mag - 0x38000000 + 0xfff + (mag >> 13 & 1)) >> 13);\n"
    "}\n#endif";

static void tci_cd_define_widen_f16(tci_cd_env *e)
{
    if (e->lanes == 1) {
        tci_cd_define(e, tci_cd_f16_widen);
        return;
    }
    int bytes = 4 * e->lanes;
    e->piece[0] = tci_cd_widen(e->cd, TC_F32, TC_F16, 1);
    e->piece[1] = tci_cd_list(e->cd, e->lanes, "$1(a[#])", 1, e->lanes);
    e->piece[2] = bytes == 16 ? "" : bytes == 32 ? "256" : "512_mask";
    e->piece[3] = bytes == 64
                      ? "({v16hi})a, ($R){0}, -1, 4"
                      : tci_scratch_printf(e->cd->d.s, "({v8hi})%s", tci_cd_to_register(bytes / 2));
    if (bytes < 16 || bytes > e->cd->d.vector_bytes) {
        tci_cd_define(e, "TC_I $R $n($T a) {\n    return ($R){$2};\n}");
        return;
    }
    tci_cd_define(e, "TC_I $R $n($T a) {\n"
                     "#if defined(__F16C__) && (TC_GCC || TC_HAS(__builtin_ia32_vcvtph2ps$3))\n"
                     "    return __builtin_ia32_vcvtph2ps$3($4);\n"
                     "#else\n    return ($R){$2};\n#endif\n}");
}

static void tci_cd_define_narrow_f16(tci_cd_env *e)
{
    if (e->lanes == 1) {
        tci_cd_define(e, tci_cd_f16_narrow);
        return;
    }
    int bytes = 4 * e->lanes;
    const char *width = bytes == 16 ? "" : bytes == 32 ? "256" : "512_mask";
    const char *call = tci_scratch_printf(e->cd->d.s, "__builtin_ia32_vcvtps2ph%s(a, %s)", width,
                                          bytes == 64 ? "0, ({v16hi}){0}, -1" : "0");
    e->piece[0] = tci_cd_narrow(e->cd, TC_F32, TC_F16, 1);
    e->piece[1] = tci_cd_list(e->cd, e->lanes, "$1(a[#])", 1, e->lanes);
    e->piece[2] = width;
    e->piece[3] = tci_cd_from_register(e->cd, bytes / 2, call);
    if (bytes < 16 || bytes > e->cd->d.vector_bytes) {
        tci_cd_define(e, "TC_I $R $n($T a) {\n    return ($R){$2};\n}");
        return;
    }
    tci_cd_define(e, "TC_I $R $n($T a) {\n"
                     "#if defined(__F16C__) && (TC_GCC || TC_HAS(__builtin_ia32_vcvtps2ph$3))\n"
                     "    return $4;\n"
                     "#else\n    return ($R){$2};\n#endif\n}");
}

TCI_FN const char *tci_cd_widen(tci_cd *cd, tc_dtype compute, tc_dtype storage, int lanes)
{
    bool is_new;
    const char *name = tci_scratch_printf(
        cd->d.s, "tc_widen_%s_%s", tci_cd_suffix(cd, compute, lanes), tci_dtype_get(storage)->name);
    name = tci_cd_intern(cd, name, &is_new);
    tc_dtype bits = tci_cd_storage_bits(storage);
    tci_cd_env e = {cd, bits, compute, lanes, name, {NULL}};
    if (!is_new) {
        return name;
    }
    if (storage == TC_F16) {
        tci_cd_define_widen_f16(&e);
    } else if (storage == TC_BOOL) {
        e.piece[0] = lanes > 1 ? tci_cd_convert(cd, bits, tci_cd_mask_dtype(cd, lanes), lanes) : "";
        tci_cd_define(&e,
                      lanes > 1 ? "#define $n(a) (($R)($1(a) != 0))" : "#define $n(a) ((a) != 0)");
    } else if (lanes > 1) {
        e.piece[0] = tci_cd_convert(cd, TC_U16, TC_U32, lanes);
        tci_cd_define(&e, "#define $n(a) (($R)($1(a) << 16))");
    } else {
        tci_cd_define(&e, "TC_I $R $n($T a) {\n    union { $R f; unsigned u; } v;\n"
                          "    v.u = (unsigned)a << 16;\n    return v.f;\n}");
    }
    return name;
}

static void tci_cd_define_narrow_bf16(tci_cd_env *e)
{
    if (e->lanes == 1) {
        tci_cd_define(e, "TC_I $R $n($T a) {\n    union { $T f; unsigned u; } v;\n    v.f = a;\n"
                         "    if (a != a) {\n        return 0x7fc0;\n    }\n"
                         "    return ($R)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);\n}");
        return;
    }
    e->piece[0] = tci_cd_convert(e->cd, TC_U32, TC_U16, e->lanes);
    tci_cd_define(e, "TC_I $R $n($T a) {\n    $U u = ($U)a;\n    $U nan = ($U)(a != a);\n"
                     "    u = (u + 0x7fff + ((u >> 16) & 1)) >> 16;\n"
                     "    return $1((u & ~nan) | (nan & 0x7fc0));\n}");
}

TCI_FN const char *tci_cd_narrow(tci_cd *cd, tc_dtype compute, tc_dtype storage, int lanes)
{
    bool is_new;
    const char *name =
        tci_scratch_printf(cd->d.s, "tc_narrow_%s_%s", tci_cd_suffix(cd, compute, lanes),
                           tci_dtype_get(storage)->name);
    name = tci_cd_intern(cd, name, &is_new);
    tci_cd_env e = {cd, compute, tci_cd_storage_bits(storage), lanes, name, {NULL}};
    if (!is_new) {
        return name;
    }
    if (storage == TC_F16) {
        tci_cd_define_narrow_f16(&e);
    } else if (storage == TC_BF16) {
        tci_cd_define_narrow_bf16(&e);
    } else if (lanes > 1) {
        e.piece[0] = tci_cd_convert(cd, tci_cd_mask_dtype(cd, lanes), TC_U8, lanes);
        tci_cd_define(&e, "#define $n(a) ($1(a) & 1)");
    } else {
        tci_cd_define(&e, "#define $n(a) (($R)(a))");
    }
    return name;
}

/* ---- masks ---- */

/* Name of: mask vector -> the AVX-512 mask register as an integer. 64-byte targets only. */
static const char *tci_cd_mask_bits(tci_cd *cd, int lanes)
{
    bool is_new;
    tci_cd_env e = {cd, TC_BOOL, TC_BOOL, lanes, NULL, {NULL}};
    e.name = tci_cd_intern(cd, tci_scratch_printf(cd->d.s, "tc_mask_bits_x%d", lanes), &is_new);
    if (is_new) {
        int size = tci_dtype_get(tci_cd_mask_dtype(cd, lanes))->bytes;
        const char *letter = size == 1 ? "b" : size == 2 ? "w" : size == 4 ? "d" : "q";
        const char *mode = size == 1 ? "qi" : size == 2 ? "hi" : size == 4 ? "si" : "di";
        e.piece[0] = tci_scratch_printf(cd->d.s, "%s2mask%d", letter, size * lanes * 8);
        e.piece[1] = tci_scratch_printf(cd->d.s, "{v%d%s}", lanes, mode);
        tci_cd_define(&e, "#define $n(m) __builtin_ia32_cvt$1(($2)(m))");
    }
    return e.name;
}

TCI_FN const char *tci_cd_any(tci_cd *cd, int lanes)
{
    bool is_new;
    tci_cd_env e = {cd, TC_BOOL, TC_BOOL, lanes, NULL, {NULL}};
    e.name = tci_cd_intern(cd, tci_scratch_printf(cd->d.s, "tc_any_x%d", lanes), &is_new);
    if (!is_new) {
        return e.name;
    }
    int bytes = tci_dtype_get(tci_cd_mask_dtype(cd, lanes))->bytes * lanes;
    const char *fast = NULL;
    if (cd->d.vector_bytes == 64 && bytes >= 16) {
        e.piece[0] = tci_cd_mask_bits(cd, lanes);
        fast = "#if TC_GCC || TC_HAS(__builtin_ia32_cvtd2mask512)\n    return $1(m) != 0;\n#else\n";
    } else if (bytes == 16 || bytes == 32) {
        e.piece[0] = bytes == 32 ? "256" : "128";
        e.piece[1] = bytes == 32 ? "{v4di}" : "{v2di}";
        fast = "#if TC_GCC || TC_HAS(__builtin_ia32_ptestz$1)\n"
               "    return !__builtin_ia32_ptestz$1(($2)m, ($2)m);\n#else\n";
    }
    e.piece[2] = fast ? fast : "";
    e.piece[3] = fast ? "#endif\n" : "";
    tci_cd_define(&e, "TC_I int $n($B m) {\n$3    int r = 0;\n    for (int i = 0; i < $L; i++) {\n"
                      "        r |= m[i] != 0;\n    }\n    return r;\n$4}");
    return e.name;
}

TCI_FN const char *tci_cd_any_less(tci_cd *cd, tc_dtype t, int lanes)
{
    bool is_new;
    tci_cd_env e = {cd, t, t, lanes, NULL, {NULL}};
    e.name = tci_scratch_printf(cd->d.s, "tc_any_lt_%s", tci_cd_suffix(cd, t, lanes));
    e.name = tci_cd_intern(cd, e.name, &is_new);
    if (!is_new) {
        return e.name;
    }
    bool wide = tci_dtype_get(t)->bytes * lanes == 64 && cd->d.vector_bytes == 64;
    e.piece[0] = t == TC_F32 ? "ps" : "pd";
    e.piece[1] = tci_cd_any(cd, lanes);
    if (wide && tci_dtype_is_float(t)) {
        tci_cd_define(&e, "#if TC_GCC || TC_HAS(__builtin_ia32_cmp$1512_mask)\n"
                          "#define $n(a, b) (__builtin_ia32_cmp$1512_mask(a, b, 17, -1, 4) != 0)\n"
                          "#else\n#define $n(a, b) $2(@lt(a, b))\n#endif");
    } else if (wide && t == TC_U32) {
        tci_cd_define(&e, "#if TC_GCC || TC_HAS(__builtin_ia32_ucmpd512_mask)\n"
                          "#define $n(a, b) \\\n"
                          "    (__builtin_ia32_ucmpd512_mask(({v16si})a, ({v16si})b, 1, -1) != 0)\n"
                          "#else\n#define $n(a, b) $2(@lt(a, b))\n#endif");
    } else {
        tci_cd_define(&e, "#define $n(a, b) $2(@lt(a, b))");
    }
    return e.name;
}

/* ---- partial accesses ---- */

/* Template of the body through the machine's masked instruction, or NULL where there is none. */
static const char *tci_cd_partial_fast(tci_cd_env *e, tci_mem m)
{
    tci_cd *cd = e->cd;
    tci_scratch *s = cd->d.s;
    int size = tci_dtype_get(e->t)->bytes;
    int bytes = size * e->lanes;
    int machine_bytes = TCI_MAX(bytes, 16);
    bool is_store = m == TCI_MEM_STORE_N;
    if (bytes > cd->d.vector_bytes || bytes < 2) {
        return NULL;
    }
    if (cd->d.vector_bytes == 64) {
        static const char *const names[9] = {
            [1] = "dquqi", [2] = "dquhi", [4] = "ups", [8] = "upd"};
        const char *mode = size == 1 ? "qi" : size == 2 ? "hi" : size == 4 ? "sf" : "df";
        const char *type = tci_scratch_printf(s, "{v%d%s}", machine_bytes / size, mode);
        const char *bits = m == TCI_MEM_LOAD_MASK
                               ? tci_scratch_printf(s, "%s(m)", tci_cd_mask_bits(cd, e->lanes))
                               : "(1ULL << n) - 1";
        const char *builtin =
            tci_scratch_printf(s, "__builtin_ia32_%s%s%d_mask", is_store ? "store" : "load",
                               names[size], machine_bytes * 8);
        const char *call =
            is_store
                ? tci_scratch_printf(s, "%s((void *)p, (%s)%s, %s)", builtin, type,
                                     tci_cd_to_register(bytes), bits)
                : tci_cd_from_register(
                    cd, bytes,
                    tci_scratch_printf(s, "%s((const void *)p, (%s){0}, %s)", builtin, type, bits));
        return tci_scratch_printf(s, "#if TC_GCC || TC_HAS(%s)\n    %s%s;\n", builtin,
                                  is_store ? "" : "return ", call);
    }
    if (cd->d.vector_bytes == 32 && size >= 4 && bytes >= 16) {
        const char *name = size == 4 ? "ps" : "pd";
        const char *width = bytes == 32 ? "256" : "";
        const char *ints = tci_scratch_printf(s, "{v%d%s}", e->lanes, size == 4 ? "si" : "di");
        const char *floats = tci_scratch_printf(s, "{v%d%s}", e->lanes, size == 4 ? "sf" : "df");
        const char *test = m == TCI_MEM_LOAD_MASK
                               ? tci_scratch_printf(s, "%s(m)", tci_cd_of_mask(cd, e->t, e->lanes))
                               : tci_scratch_printf(s, "(%s){%s} < (%s)n", ints,
                                                    tci_cd_list(cd, e->lanes, "#", 1, e->lanes),
                                                    size == 4 ? "int" : "long long");
        if (is_store) {
            return tci_scratch_printf(
                s,
                "#if TC_GCC || TC_HAS(__builtin_ia32_maskstore%s%s)\n"
                "    __builtin_ia32_maskstore%s%s((void *)p, (%s)(%s), (%s)a);\n",
                name, width, name, width, ints, test, floats);
        }
        return tci_scratch_printf(
            s,
            "#if TC_GCC || TC_HAS(__builtin_ia32_maskload%s%s)\n"
            "    return ($T)__builtin_ia32_maskload%s%s((const void *)p, (%s)(%s));\n",
            name, width, name, width, ints, test);
    }
    return NULL;
}

/* The first n elements between p and t, by constant sizes that halve. */
static const char *tci_cd_halving(tci_cd *cd, int lanes, bool to_p)
{
    tci_str text = {0};
    text.s = cd->d.s;
    for (int k = lanes / 2; k; k /= 2) {
        tci_str_printf(
            &text, "    if (n & %d) {\n        __builtin_memcpy(%s + i, %s + i, %d * sizeof *p);\n",
            k, to_p ? "p" : "t", to_p ? "t" : "p", k);
        tci_str_printf(&text, k > 1 ? "        i += %d;\n    }\n" : "    }\n", k);
    }
    return tci_str_text(&text);
}

static void tci_cd_define_partial(tci_cd_env *e, tci_mem m)
{
    tci_cd *cd = e->cd;
    const char *fast = tci_cd_partial_fast(e, m);
    e->piece[0] = fast ? fast : "";
    e->piece[1] = fast ? "#else\n" : "";
    e->piece[2] = fast ? "#endif\n" : "";
    if (m == TCI_MEM_LOAD_MASK) {
        tci_cd_define(
            e, "TC_I $T $n(const $E *p, $B m) {\n$1$2    $T r = {0};\n"
               "    for (int i = 0; i < $L; i++) {\n        if (m[i]) {\n            r[i] = p[i];\n"
               "        }\n    }\n    return r;\n$3}");
    } else if (m == TCI_MEM_LOAD_N) {
        e->piece[3] = tci_cd_halving(cd, e->lanes, false);
        tci_cd_define(e, "TC_I $T $n(const $E *p, long n) {\n$1$2    $E t[$L] = {0};\n    $T r;\n  "
                         "  int i = 0;\n"
                         "$4    __builtin_memcpy(&r, t, sizeof r);\n    return r;\n$3}");
    } else {
        e->piece[3] = tci_cd_halving(cd, e->lanes, true);
        tci_cd_define(e, "TC_I void $n($E *p, $T a, long n) {\n$1$2    $E t[$L];\n    int i = 0;\n"
                         "    __builtin_memcpy(t, &a, sizeof a);\n$4$3}");
    }
}

/* ---- the rows ---- */

static void tci_cd_define_stream(tci_cd_env *e)
{
    int bytes = tci_dtype_get(e->t)->bytes * e->lanes;
    if (bytes < 16 || bytes > e->cd->d.vector_bytes) {
        tci_cd_define(e, "#define $n(p, v) ((void)(*($A *)(p) = (v)))");
        return;
    }
    e->piece[0] = bytes == 16 ? "" : bytes == 32 ? "256" : "512";
    e->piece[1] = bytes == 16 ? "{v4sf}" : bytes == 32 ? "{v8sf}" : "{v16sf}";
    e->piece[2] = tci_scratch_printf(e->cd->d.s, "%d", bytes - 1);
    e->piece[3] = e->cd->d.type(&e->cd->d, TC_I64, 1);
    tci_cd_define(
        e,
        "TC_I void $n($E *p, $T v) {\n    if (($4)p & $3) {\n        *($A *)p = v;\n"
        "        return;\n    }\n"
        "#if TC_GCC\n    __builtin_ia32_movntps$1((void *)p, ($2)v);\n"
        "#elif defined(__clang__)\n    __builtin_nontemporal_store(v, ($T *)p);\n"
        "#else\n    *($A *)p = v;\n#endif\n}");
}

static void tci_cd_define_high_half(tci_cd_env *e)
{
    tci_cd *cd = e->cd;
    tci_str cases = {0};
    cases.s = cd->d.s;
    for (int h = 1; h < e->lanes; h *= 2) {
        tci_str_printf(&cases, "    case %d:\n        return __builtin_shufflevector(v, v", h);
        for (int i = 0; i < e->lanes; i++) {
            tci_str_printf(&cases, ", %d", (i + h) % e->lanes);
        }
        tci_str_add(&cases, ");\n");
    }
    tc_dtype element = e->t == TC_BOOL ? tci_cd_mask_dtype(cd, e->lanes) : e->t;
    tc_dtype index = tci_cd_sint(tci_dtype_get(element)->bytes);
    e->piece[0] = tci_str_text(&cases);
    e->piece[1] = tci_cd_list(cd, e->lanes, "#", 1, e->lanes);
    e->piece[2] = cd->d.type(&cd->d, index, e->lanes);
    e->piece[3] = cd->d.type(&cd->d, index, 1);
    tci_cd_define(
        e, "TC_I $T $n($T v, int h) {\n#if defined(__clang__)\n    switch (h) {\n$1    default:\n"
           "        return v;\n    }\n#else\n    return __builtin_shuffle(v, ($3){$2} + "
           "($4)h);\n#endif\n}");
}

static void tci_cd_define_swap(tci_cd_env *e, bool high)
{
    tci_cd *cd = e->cd;
    tci_str cases = {0};
    cases.s = cd->d.s;
    for (int h = 1; h < e->lanes; h *= 2) {
        tci_str_printf(&cases, "    case %d:\n        return TC_MIX($1, a, b", h);
        for (int i = 0; i < e->lanes; i++) {
            int low = i & h ? e->lanes + i - h : i;
            tci_str_printf(&cases, ", %d", high ? (i & h ? e->lanes + i : i + h) : low);
        }
        tci_str_add(&cases, ");\n");
    }
    tc_dtype element = e->t == TC_BOOL ? tci_cd_mask_dtype(cd, e->lanes) : e->t;
    tci_cd_soft(cd, "TC_MIX");
    e->piece[0] = cd->d.type(&cd->d, tci_cd_sint(tci_dtype_get(element)->bytes), e->lanes);
    e->piece[1] = tci_str_text(&cases);
    tci_cd_define(e, "TC_I $T $n($T a, $T b, int h) {\n    switch (h) {\n$2    default:\n"
                     "        return a;\n    }\n}");
}

/* Rows on whole vectors that need no more than a template; b: for masks where that differs. */
typedef struct tci_cd_mem_row {
    uint8_t mem;
    const char *name, *text, *b;
} tci_cd_mem_row;

static const tci_cd_mem_row tci_cd_mem_rows[] = {
    {TCI_MEM_LOAD, "load", "#define $n(p) (*(const $A *)(p))", NULL},
    {TCI_MEM_LOAD_MASK, "load_mask", NULL, NULL},
    {TCI_MEM_LOAD_N, "load_n", NULL, NULL},
    {TCI_MEM_LOAD_STRIDED, "load_strided",
     "TC_I $T $n(const $E *p, long s) {\n    return ($T){$1};\n}", NULL},
    {TCI_MEM_LOAD_STRIDED_N, "load_strided_n",
     "TC_I $T $n(const $E *p, long s, long n) {\n    $T r = {0};\n    for (long i = 0; i < n; i++) "
     "{\n"
     "        r[i] = p[i * s];\n    }\n    return r;\n}",
     NULL},
    {TCI_MEM_STORE, "store", "#define $n(p, v) ((void)(*($A *)(p) = (v)))", NULL},
    {TCI_MEM_STORE_N, "store_n", NULL, NULL},
    {TCI_MEM_STORE_STREAM, "store_stream", NULL, NULL},
    {TCI_MEM_STORE_STRIDED, "store_strided",
     "TC_I void $n($E *p, long s, $T v) {\n    for (int i = 0; i < $L; i++) {\n        p[i * s] = "
     "v[i];\n"
     "    }\n}",
     NULL},
    {TCI_MEM_STORE_STRIDED_N, "store_strided_n",
     "TC_I void $n($E *p, long s, $T v, long n) {\n    for (long i = 0; i < n; i++) {\n        p[i "
     "* s] = v[i];\n"
     "    }\n}",
     NULL},
    {TCI_MEM_SPLAT, "splat", "TC_I $T $n($E x) {\n    return ($T){$2};\n}",
     "TC_I $T $n(int x) {\n    x = -x;\n    return ($T){$2};\n}"},
    {TCI_MEM_IOTA, "iota", "TC_I $T $n($E x) {\n    return ($T){$2} + ($T){$3};\n}", NULL},
    {TCI_MEM_FIRST_N, "first_n", NULL,
     "TC_I $T $n(long n) {\n    $4 k = ($4)(n < 0 ? 0 : n > $L ? $L : n);\n"
     "    return ($T)(($T){$3} < k);\n}"},
    {TCI_MEM_LANE, "lane", "TC_I $E $n($T v, int i) { return v[i]; }",
     "TC_I int $n($T v, int i) { return v[i] != 0; }"},
    {TCI_MEM_SET_LANE, "set_lane",
     "TC_I $T $n($T v, int i, $E x) {\n    v[i] = x;\n    return v;\n}",
     "TC_I $T $n($T v, int i, int x) {\n    v[i] = -x;\n    return v;\n}"},
    {TCI_MEM_HIGH_HALF, "high_half", NULL, NULL},
    {TCI_MEM_SWAP_LOW, "swap_low", NULL, NULL},
    {TCI_MEM_SWAP_HIGH, "swap_high", NULL, NULL},
    {TCI_MEM_PREFETCH, "prefetch", NULL, NULL},
    {TCI_MEM_FENCE, "fence", NULL, NULL},
};

/* The same with one lane; $1 and $2 wrap the value read and the value written. */
static const char *const tci_cd_mem_scalar[TCI_MEM_COUNT] = {
    [TCI_MEM_LOAD] = "#define $n(p) $1(*(p))",
    [TCI_MEM_LOAD_MASK] = "#define $n(p, m) ((m) ? $1(*(p)) : 0)",
    [TCI_MEM_LOAD_N] = "#define $n(p, n) $1(*(p))",
    [TCI_MEM_LOAD_STRIDED] = "#define $n(p, s) $1(*(p))",
    [TCI_MEM_LOAD_STRIDED_N] = "#define $n(p, s, n) $1(*(p))",
    [TCI_MEM_STORE] = "#define $n(p, v) ((void)(*(p) = $2(v)))",
    [TCI_MEM_STORE_N] = "#define $n(p, v, n) ((void)(*(p) = $2(v)))",
    [TCI_MEM_STORE_STREAM] = "#define $n(p, v) ((void)(*(p) = $2(v)))",
    [TCI_MEM_STORE_STRIDED] = "#define $n(p, s, v) ((void)(*(p) = $2(v)))",
    [TCI_MEM_STORE_STRIDED_N] = "#define $n(p, s, v, n) ((void)(*(p) = $2(v)))",
    [TCI_MEM_SPLAT] = "#define $n(x) (x)",
    [TCI_MEM_IOTA] = "#define $n(x) (x)",
    [TCI_MEM_FIRST_N] = "#define $n(n) ((n) > 0)",
    [TCI_MEM_LANE] = "#define $n(v, i) (v)",
    [TCI_MEM_SET_LANE] = "#define $n(v, i, x) (x)",
    [TCI_MEM_HIGH_HALF] = "#define $n(v, h) (v)",
    [TCI_MEM_SWAP_LOW] = "#define $n(a, b, h) (a)",
    [TCI_MEM_SWAP_HIGH] = "#define $n(a, b, h) (b)",
};

/* Vector rows whose storage is not the compute dtype: the row on the bits, $1, around $2. */
static const char *const tci_cd_mem_wrapped[TCI_MEM_COUNT] = {
    [TCI_MEM_LOAD] = "#define $n(p) $2($1(p))",
    [TCI_MEM_LOAD_MASK] = "#define $n(p, m) $2($1(p, m))",
    [TCI_MEM_LOAD_N] = "#define $n(p, n) $2($1(p, n))",
    [TCI_MEM_LOAD_STRIDED] = "#define $n(p, s) $2($1(p, s))",
    [TCI_MEM_LOAD_STRIDED_N] = "#define $n(p, s, n) $2($1(p, s, n))",
    [TCI_MEM_STORE] = "#define $n(p, v) $1(p, $2(v))",
    [TCI_MEM_STORE_N] = "#define $n(p, v, n) $1(p, $2(v), n)",
    [TCI_MEM_STORE_STREAM] = "#define $n(p, v) $1(p, $2(v))",
    [TCI_MEM_STORE_STRIDED] = "#define $n(p, s, v) $1(p, s, $2(v))",
    [TCI_MEM_STORE_STRIDED_N] = "#define $n(p, s, v, n) $1(p, s, $2(v), n)",
};

static bool tci_cd_mem_is_store(tci_mem m)
{
    return m == TCI_MEM_STORE || m == TCI_MEM_STORE_N || m == TCI_MEM_STORE_STREAM
           || m == TCI_MEM_STORE_STRIDED || m == TCI_MEM_STORE_STRIDED_N;
}

static void tci_cd_define_mem_vector(tci_cd_env *e, tci_mem m, const tci_cd_mem_row *row)
{
    tci_cd *cd = e->cd;
    if (m == TCI_MEM_LOAD_MASK || m == TCI_MEM_LOAD_N || m == TCI_MEM_STORE_N) {
        tci_cd_define_partial(e, m);
        return;
    }
    if (m == TCI_MEM_STORE_STREAM) {
        tci_cd_define_stream(e);
        return;
    }
    if (m == TCI_MEM_HIGH_HALF) {
        tci_cd_define_high_half(e);
        return;
    }
    if (m == TCI_MEM_SWAP_LOW || m == TCI_MEM_SWAP_HIGH) {
        tci_cd_define_swap(e, m == TCI_MEM_SWAP_HIGH);
        return;
    }
    e->piece[0] = tci_cd_list(cd, e->lanes, "p[# * s]", 1, e->lanes);
    e->piece[1] = tci_cd_list(cd, e->lanes, "x", 1, e->lanes);
    e->piece[2] = tci_cd_list(cd, e->lanes, "#", 1, e->lanes);
    e->piece[3] = e->t == TC_BOOL ? cd->d.type(&cd->d, tci_cd_mask_dtype(cd, e->lanes), 1) : "";
    tci_cd_define(e, e->t == TC_BOOL && row->b ? row->b : row->text);
}

/* Accesses whose value is scalar, and rows without a value. */
static const char *tci_cd_mem_plain(tci_cd *cd, tci_mem m)
{
    bool is_new;
    tci_cd_env e = {cd, TC_F32, TC_F32, 1, NULL, {NULL}};
    e.name = tci_cd_intern(cd, m == TCI_MEM_FENCE ? "tc_fence" : "tc_prefetch", &is_new);
    if (is_new) {
        tci_cd_define(&e, m == TCI_MEM_FENCE
                              ? "#if defined(__x86_64__) && !defined(__TINYC__)\n"
                                "#define tc_fence() __builtin_ia32_sfence()\n#else\n#define "
                                "tc_fence() ((void)0)\n#endif"
                              : "#if defined(__TINYC__)\n#define tc_prefetch(p) ((void)0)\n#else\n"
                                "#define tc_prefetch(p) __builtin_prefetch(p)\n#endif");
    }
    return e.name;
}

TCI_FN const char *tci_cd_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                              int lanes)
{
    tci_cd *cd = d->state;
    if (m == TCI_MEM_FENCE || m == TCI_MEM_PREFETCH) {
        return tci_cd_mem_plain(cd, m);
    }
    if (m == TCI_MEM_LOAD_ONE || m == TCI_MEM_STORE_ONE || m == TCI_MEM_STORE_LANE) {
        return tci_cd_mem(d, m == TCI_MEM_LOAD_ONE ? TCI_MEM_LOAD : TCI_MEM_STORE, compute, storage,
                          1);
    }
    const tci_cd_mem_row *row = NULL;
    for (int i = 0; i < TCI_COUNT(tci_cd_mem_rows); i++) {
        row = tci_cd_mem_rows[i].mem == m ? &tci_cd_mem_rows[i] : row;
    }
    bool in_memory =
        m <= TCI_MEM_STORE_STRIDED_N; /* ORDER tci_mem: the rows with a pointer come first */
    bool wrapped = in_memory && (compute != storage || compute == TC_BOOL);
    const char *name =
        tci_scratch_printf(d->s, "tc_%s_%s%s%s", row->name, tci_cd_suffix(cd, compute, lanes),
                           wrapped ? "_" : "", wrapped ? tci_dtype_get(storage)->name : "");
    bool is_new;
    name = tci_cd_intern(cd, name, &is_new);
    if (!is_new) {
        return name;
    }
    tci_cd_env e = {cd, compute, compute, lanes, name, {NULL}};
    bool is_store = tci_cd_mem_is_store(m);
    const char *wrap = !wrapped   ? ""
                       : is_store ? tci_cd_narrow(cd, compute, storage, lanes)
                                  : tci_cd_widen(cd, compute, storage, lanes);
    if (lanes == 1) {
        e.piece[0] = wrap;
        e.piece[1] = wrap;
        tci_cd_define(&e, tci_cd_mem_scalar[m]);
    } else if (wrapped) {
        tc_dtype bits = tci_cd_storage_bits(storage);
        e.piece[0] = tci_cd_mem(d, m, bits, bits, lanes);
        e.piece[1] = wrap;
        tci_cd_define(&e, tci_cd_mem_wrapped[m]);
    } else {
        tci_cd_define_mem_vector(&e, m, row);
    }
    return name;
}
/* ---- src/cpu/prims.c ---- */
/* cpu/prims.c - how the C dialect spells the BASE prims.
 *
 * In: a template's meaning (cpu/spell.h) and a prim. Out: its definition.
 * The one idea: three layers. An operator of the vector extension where there is one; else an x86
 * builtin of the exact instruction, under TC_GCC or TC_HAS(builtin); else a loop over the lanes of
 * the scalar definition, which is plain C and the meaning that everything else equals bit for bit
 * (tests/cpu/test_dialect.c).
 * Invariant: no operation of a definition is undefined in C for any operand (wrapping apart:
 * -fwrapv); a compiler may therefore fold constants as it likes. */
#include <string.h>


/* ---- conversion of vectors, values known in range ---- */

TCI_FN const char *tci_cd_to_register(int bytes)
{
    switch (bytes) {
    case 2:
        return "({v8hi}){(short)a}";
    case 4:
        return "({v4si}){(int)a}";
    case 8:
        return "({v2di}){(long long)a}";
    default:
        return "a";
    }
}

TCI_FN const char *tci_cd_from_register(tci_cd *cd, int bytes, const char *expression)
{
    switch (bytes) {
    case 2:
        return tci_scratch_printf(cd->d.s, "($R)(({v8hi})%s)[0]", expression);
    case 4:
        return tci_scratch_printf(cd->d.s, "($R)(({v4si})%s)[0]", expression);
    case 8:
        return tci_scratch_printf(cd->d.s, "($R)(({v2di})%s)[0]", expression);
    default:
        return tci_scratch_printf(cd->d.s, "($R)%s", expression);
    }
}

static char tci_cd_size_letter(int bytes)
{
    return bytes == 1 ? 'b' : bytes == 2 ? 'w' : bytes == 4 ? 'd' : 'q';
}

static const char *tci_cd_size_mode(int bytes)
{
    return bytes == 1 ? "qi" : bytes == 2 ? "hi" : bytes == 4 ? "si" : "di";
}

/* Template of gcc's expression for an integer vector `a` made wider: one vpmovzx or vpmovsx. */
static const char *tci_cd_widen_int(tci_cd *cd, tc_dtype from, int in, int out, int lanes)
{
    char sign = tci_dtype_is_signed(from) ? 's' : 'z';
    int register_bytes = TCI_MAX(in * lanes, 16);
    /* gcc 12 breaks off ("could not split insn") over 8 bytes made 64 when it knows that the rest
     * of the register is zero. */
    const char *half = in * lanes == 8 && out * lanes == 64
                           ? "({v2di}){(long long)a, (long long)a}"
                           : tci_cd_to_register(in * lanes);
    const char *argument = tci_scratch_printf(cd->d.s, "({v%d%s})%s", register_bytes / in,
                                              tci_cd_size_mode(in), half);
    const char *rest = out * lanes < 64 ? ""
                                        : tci_scratch_printf(cd->d.s, ", ({v%d%s}){0}, -1", lanes,
                                                             tci_cd_size_mode(out));
    return tci_scratch_printf(cd->d.s, "($R)__builtin_ia32_pmov%cx%c%c%d%s(%s%s)", sign,
                              tci_cd_size_letter(in), tci_cd_size_letter(out), out * lanes * 8,
                              out * lanes < 64 ? "" : "_mask", argument, rest);
}

/* The same for narrower: one vpmov of AVX-512, else a byte shuffle. */
static const char *tci_cd_narrow_int(tci_cd *cd, int in, int out, int lanes)
{
    const char *low;
    if (cd->d.vector_bytes == 64) {
        int register_bytes = TCI_MAX(out * lanes, 16);
        low = tci_scratch_printf(
            cd->d.s, "__builtin_ia32_pmov%c%c%d_mask(({v%d%s})a, ({v%d%s}){0}, -1)",
            tci_cd_size_letter(in), tci_cd_size_letter(out), in * lanes * 8, lanes,
            tci_cd_size_mode(in), register_bytes / out, tci_cd_size_mode(out));
    } else {
        tci_str order = {0};
        order.s = cd->d.s;
        int total = in * lanes;
        for (int i = 0; i < total; i++) {
            int from = i < out * lanes ? i / out * in + i % out : i;
            tci_str_printf(&order, "%s%d", i ? ", " : "", from);
        }
        low = tci_scratch_printf(cd->d.s, "__builtin_shuffle(({v%dqi})a, ({v%dqi}){%s})", total,
                                 total, tci_str_text(&order));
        if (total == 32) {
            low = tci_scratch_printf(cd->d.s, "__builtin_ia32_vextractf128_si256(({v8si})%s, 0)",
                                     low);
        }
    }
    return tci_cd_from_register(cd, out * lanes, low);
}

/* gcc's expression where its own __builtin_convertvector takes the vector apart (seen in gcc 12),
 * else NULL. */
static const char *tci_cd_convert_gcc(tci_cd *cd, tc_dtype from, tc_dtype to, int lanes)
{
    int in = tci_dtype_get(from)->bytes;
    int out = tci_dtype_get(to)->bytes;
    int widest = TCI_MAX(in, out) * lanes;
    bool wide512 = widest == 64;
    if (cd->d.vector_bytes < 32 || widest > cd->d.vector_bytes || widest < 16) {
        return NULL;
    }
    if (tci_dtype_is_int(from) && tci_dtype_is_int(to)) {
        return out > in ? tci_cd_widen_int(cd, from, in, out, lanes)
                        : tci_cd_narrow_int(cd, in, out, lanes);
    }
    if (widest < 32) {
        return NULL;
    }
    if (from == TC_F32 && to == TC_F64) {
        return wide512 ? "__builtin_ia32_cvtps2pd512_mask(a, ($R){0}, -1, 4)"
                       : "__builtin_ia32_cvtps2pd256(a)";
    }
    if (from == TC_I32 && to == TC_F64) {
        return wide512 ? "__builtin_ia32_cvtdq2pd512_mask(a, ($R){0}, -1)"
                       : "__builtin_ia32_cvtdq2pd256(a)";
    }
    if (!wide512) {
        return NULL;
    }
    if (from == TC_U32 && to == TC_F64) {
        return "__builtin_ia32_cvtudq2pd512_mask(({v8si})a, ($R){0}, -1)";
    }
    if (from == TC_F32 && to == TC_I64) {
        return "__builtin_ia32_cvttps2qq512_mask(a, ($R){0}, -1, 4)";
    }
    if (from == TC_F32 && to == TC_U64) {
        return "($R)__builtin_ia32_cvttps2uqq512_mask(a, ({v8di}){0}, -1, 4)";
    }
    return NULL;
}

TCI_FN const char *tci_cd_convert(tci_cd *cd, tc_dtype from, tc_dtype to, int lanes)
{
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_cvt_%s_%s", tci_cd_suffix(cd, from, lanes),
                                          tci_dtype_get(to)->name);
    name = tci_cd_intern(cd, name, &is_new);
    if (!is_new) {
        return name;
    }
    tci_cd_env e = {cd, from, to, lanes, name, {NULL}};
    int in = tci_dtype_get(from)->bytes;
    int out = tci_dtype_get(to)->bytes;
    bool float_in = tci_dtype_is_float(from);
    bool float_out = tci_dtype_is_float(to);
    if (from == to || (in == out && !float_in && !float_out)) {
        tci_cd_define(&e, "#define $n(a) (($R)(a))");
        return name;
    }
    if ((float_in && !float_out && out < 4) || (float_out && !float_in && in < 4)) {
        e.piece[0] = tci_cd_convert(cd, from, TC_I32, lanes);
        e.piece[1] = tci_cd_convert(cd, TC_I32, to, lanes);
        tci_cd_define(&e, "#define $n(a) $2($1(a))");
        return name;
    }
    e.piece[0] = tci_cd_convert_gcc(cd, from, to, lanes);
    e.piece[3] = tci_cd_list(cd, lanes, "a[#]", 1, lanes);
    tci_cd_define(&e, e.piece[0] ? "TC_I $R $n($T a) {\n#if TC_GCC\n    return $1;\n"
                                   "#else\n    return __builtin_convertvector(a, $R);\n#endif\n}"
                                 : "TC_I $R $n($T a) {\n#if TC_CONVERT\n"
                                   "    return __builtin_convertvector(a, $R);\n"
                                   "#else\n    return ($R){$4};\n#endif\n}");
    return name;
}

TCI_FN const char *tci_cd_to_mask(tci_cd *cd, tc_dtype t, int lanes)
{
    return tci_cd_convert(cd, tci_cd_sint(tci_dtype_get(t)->bytes), tci_cd_mask_dtype(cd, lanes),
                          lanes);
}

TCI_FN const char *tci_cd_of_mask(tci_cd *cd, tc_dtype t, int lanes)
{
    return tci_cd_convert(cd, tci_cd_mask_dtype(cd, lanes), tci_cd_sint(tci_dtype_get(t)->bytes),
                          lanes);
}

/* ---- prims by operator ---- */

/* where: '1' scalar, 'v' vector, '*' both; then the kinds of the operands' dtype: f float, s
 * signed, u unsigned, b bool (as a mask 0 / -1 in vectors). A macro uses each argument once. */
typedef struct tci_cd_row {
    uint8_t prim;
    const char *where;
    const char *text;
} tci_cd_row;

static const tci_cd_row tci_cd_rows[] = {
    {TCI_P_ADD, "*fsu", "#define $n(a, b) (($T)((a) + (b)))"},
    {TCI_P_ADD, "*b", "#define $n(a, b) ((a) | (b))"},
    {TCI_P_SUB, "*fsu", "#define $n(a, b) (($T)((a) - (b)))"},
    {TCI_P_SUB, "*b", "#define $n(a, b) ((a) ^ (b))"},
    {TCI_P_MUL, "*fsu", "#define $n(a, b) (($T)((a) * (b)))"},
    {TCI_P_MUL, "*b", "#define $n(a, b) ((a) & (b))"},
    {TCI_P_DIV, "*f", "#define $n(a, b) ((a) / (b))"},
    {TCI_P_DIV, "*b", "#define $n(a, b) ((a) & (b))"},
    {TCI_P_DIV, "1u", "TC_I $T $n($T a, $T b) { return b ? a / b : 0; }"},
    {TCI_P_DIV, "1s",
     "TC_I $T $n($T a, $T b) { return b == 0 ? 0 : b == -1 ? ($T)(0 - ($V)a) : ($T)(a / b); }"},
    {TCI_P_REM, "*b", "#define $n(a, b) ((a) & (b) & 0)"},
    {TCI_P_REM, "1u", "TC_I $T $n($T a, $T b) { return b ? a % b : 0; }"},
    {TCI_P_REM, "1s", "TC_I $T $n($T a, $T b) { return b == 0 || b == -1 ? 0 : a % b; }"},
    {TCI_P_FMA, "*su", "#define $n(a, b, c) (($T)((a) * (b) + (c)))"},
    {TCI_P_FMA, "*b", "#define $n(a, b, c) (((a) & (b)) | (c))"},
    {TCI_P_NEG, "*fsu", "#define $n(a) (($T)(-(a)))"},
    {TCI_P_NEG, "*b", "#define $n(a) (a)"},
    {TCI_P_ABS, "*ub", "#define $n(a) (a)"},
    {TCI_P_ABS, "1s", "TC_I $T $n($T a) { return a < 0 ? ($T)(0 - ($V)a) : a; }"},
    {TCI_P_ABS, "vs", "TC_I $T $n($T a) { $T m = ($T)(a < 0); return (a ^ m) - m; }"},
    {TCI_P_ABS, "vf", "#define $n(a) (($T)((($U)(a) << 1) >> 1))"},
    {TCI_P_PMIN, "1fsu", "TC_I $T $n($T a, $T b) { return a < b ? a : b; }"},
    {TCI_P_PMIN, "vsu",
     "TC_I $T $n($T a, $T b) { $T m = ($T)(a < b); return (m & a) | (~m & b); }"},
    {TCI_P_PMIN, "*b", "#define $n(a, b) ((a) & (b))"},
    {TCI_P_PMAX, "1fsu", "TC_I $T $n($T a, $T b) { return a > b ? a : b; }"},
    {TCI_P_PMAX, "vsu",
     "TC_I $T $n($T a, $T b) { $T m = ($T)(a > b); return (m & a) | (~m & b); }"},
    {TCI_P_PMAX, "*b", "#define $n(a, b) ((a) | (b))"},
    {TCI_P_FLOOR, "*sub", "#define $n(a) (a)"},
    {TCI_P_CEIL, "*sub", "#define $n(a) (a)"},
    {TCI_P_TRUNC, "*sub", "#define $n(a) (a)"},
    {TCI_P_RINT, "*sub", "#define $n(a) (a)"},
    {TCI_P_EQ, "1fsub", "#define $n(a, b) ((a) == (b))"},
    {TCI_P_EQ, "vfsu", "#define $n(a, b) $1(($I)((a) == (b)))"},
    {TCI_P_EQ, "vb", "#define $n(a, b) (~((a) ^ (b)))"},
    {TCI_P_LT, "1fsub", "#define $n(a, b) ((a) < (b))"},
    {TCI_P_LT, "vfsu", "#define $n(a, b) $1(($I)((a) < (b)))"},
    {TCI_P_LT, "vb", "#define $n(a, b) (~(a) & (b))"},
    {TCI_P_LE, "1fsub", "#define $n(a, b) ((a) <= (b))"},
    {TCI_P_LE, "vfsu", "#define $n(a, b) $1(($I)((a) <= (b)))"},
    {TCI_P_LE, "vb", "#define $n(a, b) (~(a) | (b))"},
    {TCI_P_AND, "*sub", "#define $n(a, b) (($T)((a) & (b)))"},
    {TCI_P_OR, "*sub", "#define $n(a, b) (($T)((a) | (b)))"},
    {TCI_P_XOR, "*sub", "#define $n(a, b) (($T)((a) ^ (b)))"},
    {TCI_P_NOT, "*su", "#define $n(a) (($T)~(a))"},
    {TCI_P_NOT, "1b", "#define $n(a) (!(a))"},
    {TCI_P_NOT, "vb", "#define $n(a) (~(a))"},
    {TCI_P_SHL, "1su", "TC_I $T $n($T a, $T b) { return ($V)b >= $W ? 0 : ($T)(($V)a << b); }"},
    {TCI_P_SHL, "vsu",
     "TC_I $T $n($T a, $T b) {\n    $U k = ($U)b;\n"
     "    return ($T)((($U)a << (k & ($W - 1))) & ($U)(k < $W));\n}"},
    {TCI_P_SHL, "*b", "#define $n(a, b) (a)"},
    {TCI_P_SHR, "1u", "TC_I $T $n($T a, $T b) { return b >= $W ? 0 : ($T)(a >> b); }"},
    {TCI_P_SHR, "1s", "TC_I $T $n($T a, $T b) { return a >> (($V)b >= $W ? $W - 1 : b); }"},
    {TCI_P_SHR, "vu", "TC_I $T $n($T a, $T b) { return (a >> (b & ($W - 1))) & ($T)(b < $W); }"},
    {TCI_P_SHR, "vs",
     "TC_I $T $n($T a, $T b) {\n    $U far = ($U)(($U)b >= $W);\n"
     "    return a >> ($T)((($U)b & ~far) | (far & ($W - 1)));\n}"},
    {TCI_P_SHR, "1b", "#define $n(a, b) ((a) & !(b))"},
    {TCI_P_SHR, "vb", "#define $n(a, b) ((a) & ~(b))"},
    {TCI_P_SELECT, "1fsub", "#define $n(m, a, b) ((m) ? (a) : (b))"},
    {TCI_P_SELECT, "vb", "TC_I $T $n($T m, $T a, $T b) { return (m & a) | (~m & b); }"},
    {TCI_P_BITS, "1fsu", "TC_I $R $n($T a) { union { $T a; $R r; } u; u.a = a; return u.r; }"},
    {TCI_P_BITS, "vfsu", "#define $n(a) (($R)(a))"},
    {TCI_P_TOINT, "1f", "#define $n(a) (($R)(a))"},
    {TCI_P_TOINT, "vf", "#define $n(a) $1(a)"},
    {TCI_P_ROUND16, "*f", "#define $n(a) $1($2(a))"},
};

static char tci_cd_kind(tc_dtype t)
{
    return t == TC_BOOL ? 'b' : tci_dtype_is_float(t) ? 'f' : tci_dtype_is_signed(t) ? 's' : 'u';
}

static const char *tci_cd_find_row(tci_prim p, tc_dtype t, int lanes)
{
    for (int i = 0; i < TCI_COUNT(tci_cd_rows); i++) {
        const tci_cd_row *r = &tci_cd_rows[i];
        bool here = r->where[0] == '*' || (r->where[0] == '1') == (lanes == 1);
        if (r->prim == p && here && strchr(r->where + 1, tci_cd_kind(t))) {
            return r->text;
        }
    }
    return NULL;
}

/* ---- prims by builtin ---- */

/* x86 builtins, without "__builtin_ia32_". $1 is ps or pd, $2 is 256 for 32-byte vectors. */
typedef struct tci_cd_builtin {
    uint8_t prim;
    const char *small_name, *small_args; /* 16 and 32 bytes, both compilers */
    const char *gcc_name, *gcc_args;     /* 64 bytes */
    const char *clang_name, *clang_args;
    const char *elementwise; /* newer clang; NULL none */
} tci_cd_builtin;

static const tci_cd_builtin tci_cd_builtins[] = {
    {TCI_P_FMA, "vfmadd$1$2", "a, b, c", "vfmadd$1512_mask", "a, b, c, -1, 4", "vfmadd$1512_mask",
     "a, b, c, -1, 4", "fma"},
    {TCI_P_SQRT, "sqrt$1$2", "a", "sqrt$1512_mask", "a, a, -1, 4", "sqrt$1512", "a, 4", "sqrt"},
    {TCI_P_PMIN, "min$1$2", "a, b", "min$1512_mask", "a, b, a, -1, 4", "min$1512", "a, b, 4", NULL},
    {TCI_P_PMAX, "max$1$2", "a, b", "max$1512_mask", "a, b, a, -1, 4", "max$1512", "a, b, 4", NULL},
    {TCI_P_FLOOR, "round$1$2", "a, 9", "rndscale$1_mask", "a, 9, a, -1, 4", "rndscale$1_mask",
     "a, 9, a, -1, 4", "floor"},
    {TCI_P_CEIL, "round$1$2", "a, 10", "rndscale$1_mask", "a, 10, a, -1, 4", "rndscale$1_mask",
     "a, 10, a, -1, 4", "ceil"},
    {TCI_P_TRUNC, "round$1$2", "a, 11", "rndscale$1_mask", "a, 11, a, -1, 4", "rndscale$1_mask",
     "a, 11, a, -1, 4", "trunc"},
    {TCI_P_RINT, "round$1$2", "a, 8", "rndscale$1_mask", "a, 8, a, -1, 4", "rndscale$1_mask",
     "a, 8, a, -1, 4", NULL},
};

static const char *const tci_cd_params[4] = {"", "$T a", "$T a, $T b", "$T a, $T b, $T c"};
static const char *const tci_cd_args[4] = {"", "a", "a, b", "a, b, c"};

/* Body of last resort: the scalar prim on each lane. */
static const char *tci_cd_lane_body(const tci_cd_env *e, const char *scalar, int n_args)
{
    static const char *const elements[4] = {"", "a[#]", "a[#], b[#]", "a[#], b[#], c[#]"};
    static const char *const loops[4] = {"", "a[i]", "a[i], b[i]", "a[i], b[i], c[i]"};
    tci_scratch *s = e->cd->d.s;
    if (e->lanes <= 8) {
        const char *call = tci_scratch_printf(s, "%s(%s)", scalar, elements[n_args]);
        return tci_scratch_printf(s, "    return ($R){%s};\n",
                                  tci_cd_list(e->cd, e->lanes, call, 1, e->lanes));
    }
    return tci_scratch_printf(
        s,
        "    $R r;\n    for (int i = 0; i < $L; i++) {\n        r[i] = %s(%s);\n"
        "    }\n    return r;\n",
        scalar, loops[n_args]);
}

static void tci_cd_define_lanes(tci_cd_env *e, const char *scalar, int n_args)
{
    e->piece[0] = tci_cd_params[n_args];
    e->piece[1] = tci_cd_lane_body(e, scalar, n_args);
    tci_cd_define(e, "TC_I $R $n($1) {\n$2}");
}

/* A vector wider than the machine's, done in native parts. */
static void tci_cd_define_parts(tci_cd_env *e, tci_prim p, int n_args)
{
    tci_cd *cd = e->cd;
    int native = cd->d.vector_bytes / tci_dtype_get(e->t)->bytes;
    const char *part = cd->d.type(&cd->d, e->t, native);
    e->piece[0] = tci_cd_params[n_args];
    e->piece[1] = tci_scratch_printf(
        cd->d.s, "    union { $T v; %s h[%d]; } x, y, z, r;\n    x.v = a;\n%s%s", part,
        e->lanes / native, n_args > 1 ? "    y.v = b;\n" : "", n_args > 2 ? "    z.v = c;\n" : "");
    e->piece[2] = tci_scratch_printf(
        cd->d.s,
        "    for (int i = 0; i < %d; i++) {\n        r.h[i] = %s(%s);\n    }\n    return r.v;\n",
        e->lanes / native, cd->d.prim(&cd->d, p, e->t, e->t, native, 0),
        n_args == 1   ? "x.h[i]"
        : n_args == 2 ? "x.h[i], y.h[i]"
                      : "x.h[i], y.h[i], z.h[i]");
    tci_cd_define(e, "TC_I $T $n($1) {\n$2$3}");
}

static bool tci_cd_define_builtin(tci_cd_env *e, tci_prim p, int n_args)
{
    tci_cd *cd = e->cd;
    tci_scratch *s = cd->d.s;
    const tci_cd_builtin *b = NULL;
    for (int i = 0; i < TCI_COUNT(tci_cd_builtins); i++) {
        b = tci_cd_builtins[i].prim == p ? &tci_cd_builtins[i] : b;
    }
    int bytes = tci_dtype_get(e->t)->bytes * e->lanes;
    if (!b || !tci_dtype_is_float(e->t) || bytes < 16) {
        return false;
    }
    if (bytes > cd->d.vector_bytes) {
        tci_cd_define_parts(e, p, n_args);
        return true;
    }
    bool small = bytes < 64;
    tci_str text = {0};
    text.s = s;
    tci_str_printf(&text, "TC_I $T $n(%s) {\n#if TC_GCC\n    return __builtin_ia32_%s(%s);\n",
                   tci_cd_params[n_args], small ? b->small_name : b->gcc_name,
                   small ? b->small_args : b->gcc_args);
    const char *clang_name = small ? b->small_name : b->clang_name;
    tci_str_printf(&text, "#elif TC_HAS(__builtin_ia32_%s)\n    return __builtin_ia32_%s(%s);\n",
                   clang_name, clang_name, small ? b->small_args : b->clang_args);
    if (b->elementwise) {
        tci_str_printf(
            &text,
            "#elif TC_HAS(__builtin_elementwise_%s)\n    return __builtin_elementwise_%s(%s);\n",
            b->elementwise, b->elementwise, tci_cd_args[n_args]);
    }
    const char *scalar = cd->d.prim(&cd->d, p, e->t, e->t, 1, 0);
    const char *rest = tci_cd_lane_body(e, scalar, n_args);
    if (p == TCI_P_PMIN || p == TCI_P_PMAX) {
        rest = p == TCI_P_PMIN ? "    $I m = ($I)(a < b);\n" : "    $I m = ($I)(a > b);\n";
        rest = tci_scratch_printf(s, "%s    return ($T)((m & ($I)a) | (~m & ($I)b));\n", rest);
    }
    tci_str_printf(&text, "#else\n%s#endif\n}", rest);
    e->piece[0] = e->t == TC_F32 ? "ps" : "pd";
    e->piece[1] = bytes == 32 ? "256" : "";
    tci_cd_define(e, tci_str_text(&text));
    return true;
}

static void tci_cd_define_select(tci_cd_env *e)
{
    int size = tci_dtype_get(e->t)->bytes;
    int bytes = size * e->lanes;
    e->piece[0] = tci_cd_of_mask(e->cd, e->t, e->lanes);
    tci_str text = {0};
    text.s = e->cd->d.s;
    tci_str_add(&text, "TC_I $T $n($B k, $T a, $T b) {\n    $I m = $1(k);\n");
    if (bytes == 16 || bytes == 32) { /* 64 bytes: compilers make one vpternlog of the operators */
        const char *name = size == 4 ? "blendvps" : size == 8 ? "blendvpd" : "pblendvb";
        const char *width = bytes == 32 ? "256" : size < 4 ? "128" : "";
        const char *type = tci_scratch_printf(e->cd->d.s, "{v%d%s}", bytes / (size < 4 ? 1 : size),
                                              size == 4   ? "sf"
                                              : size == 8 ? "df"
                                                          : "qi");
        tci_str_printf(&text,
                       "#if TC_GCC || TC_HAS(__builtin_ia32_%s%s)\n"
                       "    return ($T)__builtin_ia32_%s%s((%s)b, (%s)a, (%s)m);\n#else\n",
                       name, width, name, width, type, type, type);
    }
    tci_str_add(&text, "    return ($T)((m & ($I)a) | (~m & ($I)b));\n");
    tci_str_add(&text, bytes == 16 || bytes == 32 ? "#endif\n}" : "}");
    tci_cd_define(e, tci_str_text(&text));
}

/* gcc makes a vector of a comparison before a SELECT takes it, and the operators of the SELECT two
 * instructions: on AVX-512 the mask can stay in its register. */
TCI_FN const char *tci_cd_pick(tci_cd *cd, tci_prim compare, tc_dtype t, tc_dtype to, int lanes)
{
    int size = tci_dtype_get(t)->bytes;
    bool compares = compare == TCI_P_EQ || compare == TCI_P_LT || compare == TCI_P_LE;
    if (!compares || size < 4 || size * lanes != 64 || cd->d.vector_bytes != 64 ||
        t == TC_BOOL || to == TC_BOOL || tci_dtype_get(to)->bytes != size) {
        return NULL;
    }
    bool is_new, is_float = tci_dtype_is_float(t);
    tci_cd_env e = {cd, t, to, lanes, NULL, {NULL}};
    e.name = tci_scratch_printf(cd->d.s, "tc_pick_%s_%s_%s", tci_prim_get(compare)->name,
                                tci_cd_suffix(cd, t, lanes), tci_dtype_get(to)->name);
    e.name = tci_cd_intern(cd, e.name, &is_new);
    if (!is_new) {
        return e.name;
    }
    int predicate = compare == TCI_P_EQ ? 0 : (compare == TCI_P_LT ? 1 : 2) + (is_float ? 16 : 0);
    char sign = tci_dtype_is_float(t) || tci_dtype_is_signed(t) ? ' ' : 'u';
    e.piece[0] = tci_scratch_printf(
        cd->d.s, "__builtin_ia32_%scmp%s512_mask((%s)x, (%s)y, %d, -1%s)", sign == 'u' ? "u" : "",
        is_float ? (size == 4 ? "ps" : "pd") : (size == 4 ? "d" : "q"),
        is_float ? "$T" : (size == 4 ? "{v16si}" : "{v8di}"),
        is_float ? "$T" : (size == 4 ? "{v16si}" : "{v8di}"), predicate, is_float ? ", 4" : "");
    e.piece[1] = size == 4 ? "ps" : "pd";
    e.piece[2] = size == 4 ? "{v16sf}" : "{v8df}";
    e.piece[3] = cd->d.prim(&cd->d, TCI_P_SELECT, to, to, lanes, 0);
    const char *test = cd->d.prim(&cd->d, compare, t, t, lanes, 0);
    tci_cd_define(&e, tci_scratch_printf(
                          cd->d.s,
                          "TC_I $R $n($T x, $T y, $R a, $R b) {\n#if TC_GCC\n"
                          "    return ($R)__builtin_ia32_blendm$2_512_mask(($3)b, ($3)a, $1);\n"
                          "#else\n    return $4(%s(x, y), a, b);\n#endif\n}",
                          test));
    return e.name;
}

/* ---- casts ---- */

/* Bounds of an integer dtype as texts: [0] lowest, [1] highest, [2] and [3] the floats lo <= x < hi
 * that truncate into range (2 to the bits, exact in any float). as_bits: highest of an unsigned
 * type as the signed number of the same bits, where that is what an operator wants. */
static void tci_cd_bounds(tci_cd_env *e, tc_dtype to, bool as_bits)
{
    int bits = 8 * tci_dtype_get(to)->bytes;
    bool is_signed = tci_dtype_is_signed(to);
    tci_value lo = {0};
    tci_value hi = {0};
    lo.i = is_signed ? -(int64_t)((uint64_t)1 << (bits - 1) >> 1) * 2 : 0;
    hi.u = UINT64_MAX >> (64 - bits + is_signed);
    bool minus_one = as_bits && !is_signed && bits >= 32;
    e->piece[0] = e->cd->d.constant(&e->cd->d, to, lo);
    e->piece[1] = minus_one ? "-1" : e->cd->d.constant(&e->cd->d, to, hi);
    const char *f = e->t == TC_F32 ? "f" : "";
    e->piece[2] = is_signed ? tci_scratch_printf(e->cd->d.s, "-0x1p%d%s", bits - 1, f) : "0";
    e->piece[3] = tci_scratch_printf(e->cd->d.s, "0x1p%d%s", bits - is_signed, f);
}

static void tci_cd_define_cast_scalar(tci_cd_env *e)
{
    bool float_in = tci_dtype_is_float(e->t);
    bool float_out = tci_dtype_is_float(e->to);
    if (e->to == TC_BOOL) {
        tci_cd_define(e, "#define $n(a) ((a) != 0)");
    } else if (float_in && !float_out) {
        tci_cd_bounds(e, e->to, false);
        tci_cd_define(
            e, e->to == TC_U64
                   ? "TC_I $R $n($T a) {\n    if (!(a >= 0)) {\n        return 0;\n    }\n"
                     "    if (a >= $4) {\n        return $2;\n    }\n"
                     "    return a >= 0x1p63f ? ($R)(long long)(a - 0x1p63f) + ((($R)1) << 63)\n"
                     "                        : ($R)(long long)a;\n}"
                   : "TC_I $R $n($T a) {\n    if (!(a >= $3)) {\n        return a < $3 ? $1 : 0;\n "
                     "   }\n"
                     "    return a >= $4 ? $2 : ($R)(long long)a;\n}");
    } else if (e->t == TC_U64 && float_out) {
        /* Halved with the lost bit kept sticky, a signed conversion rounds the same way. */
        tci_cd_define(
            e,
            "TC_I $R $n($T a) {\n    if (!(a >> 63)) {\n        return ($R)(long long)a;\n    }\n"
            "    return ($R)(long long)((a >> 1) | (a & 1)) * 2;\n}");
    } else {
        tci_cd_define(e, "#define $n(a) (($R)(a))");
    }
}

/* float -> int: lanes out of range are zeroed before the conversion and or-ed afterwards. */
static void tci_cd_define_cast_float_int(tci_cd_env *e)
{
    tci_cd *cd = e->cd;
    tci_scratch *s = cd->d.s;
    tc_dtype wide = tci_dtype_get(e->to)->bytes < 4 ? TC_I32 : e->to;
    tc_dtype wide_signed = tci_cd_sint(tci_dtype_get(wide)->bytes);
    const char *wide_type = cd->d.type(&cd->d, wide_signed, e->lanes);
    const char *mask =
        tci_cd_convert(cd, tci_cd_sint(tci_dtype_get(e->t)->bytes), wide_signed, e->lanes);
    const char *convert = tci_cd_convert(cd, e->t, wide, e->lanes);
    const char *last = tci_cd_convert(cd, wide_signed, e->to, e->lanes);
    tci_cd_bounds(e, e->to, true);
    const char *low = tci_dtype_is_signed(e->to)
                          ? tci_scratch_printf(s, "    r |= %s(($I)(a < $3)) & $1;\n", mask)
                          : "";
    tci_cd_define(
        e, tci_scratch_printf(s,
                              "TC_I $R $n($T a) {\n    $I ok = ($I)(a >= $3) & ($I)(a < $4);\n"
                              "    %s r = (%s)%s(($T)(($I)a & ok));\n"
                              "    r |= %s(($I)(a >= $4)) & $2;\n%s    return %s(r);\n}",
                              wide_type, wide_type, convert, mask, low, last));
}

static void tci_cd_define_cast_vector(tci_cd_env *e)
{
    tci_cd *cd = e->cd;
    if (e->t == e->to) {
        tci_cd_define(e, "#define $n(a) (a)");
    } else if (e->to == TC_BOOL) {
        e->piece[0] = tci_cd_to_mask(cd, e->t, e->lanes);
        tci_cd_define(e, "#define $n(a) $1(($I)((a) != 0))");
    } else if (e->t == TC_BOOL) {
        tc_dtype same = tci_cd_sint(tci_dtype_get(e->to)->bytes);
        e->piece[0] = tci_cd_of_mask(cd, e->to, e->lanes);
        e->piece[1] = e->to == TC_F32   ? "0x3f800000"
                      : e->to == TC_F64 ? "0x3ff0000000000000LL"
                                        : "1";
        e->piece[2] = cd->d.type(&cd->d, same, e->lanes);
        tci_cd_define(e, "TC_I $R $n($T a) { $3 m = $1(a); return ($R)(m & $2); }");
    } else if (tci_dtype_is_float(e->t) && tci_dtype_is_int(e->to)) {
        tci_cd_define_cast_float_int(e);
    } else {
        e->piece[0] = tci_cd_convert(cd, e->t, e->to, e->lanes);
        tci_cd_define(e, "#define $n(a) $1(a)");
    }
}

/* ---- one prim ---- */

TCI_FN void tci_cd_define_base(const tci_cd_env *outer, tci_prim p)
{
    tci_cd_env env = *outer;
    tci_cd_env *e = &env;
    tci_cd *cd = e->cd;
    int n_args = tci_prim_get(p)->arity;
    const char *text = tci_cd_find_row(p, e->t, e->lanes);
    bool is_vector = e->lanes > 1;
    if (p == TCI_P_CAST) {
        if (is_vector) {
            tci_cd_define_cast_vector(e);
        } else {
            tci_cd_define_cast_scalar(e);
        }
    } else if (text) {
        if (p == TCI_P_EQ || p == TCI_P_LT || p == TCI_P_LE) {
            e->piece[0] = is_vector && e->t != TC_BOOL ? tci_cd_to_mask(cd, e->t, e->lanes) : "";
        } else if (p == TCI_P_TOINT) {
            e->piece[0] = is_vector ? tci_cd_convert(cd, e->t, e->to, e->lanes) : "";
        } else if (p == TCI_P_ROUND16) {
            e->piece[0] = tci_cd_widen(cd, TC_F32, TC_F16, e->lanes);
            e->piece[1] = tci_cd_narrow(cd, TC_F32, TC_F16, e->lanes);
        }
        tci_cd_define(e, text);
    } else if (is_vector && p == TCI_P_SELECT) {
        tci_cd_define_select(e);
    } else if (is_vector && p == TCI_P_ROUNDB16) {
        tci_cd_define(e, "TC_I $T $n($T a) {\n    $U u = ($U)a;\n    $U nan = ($U)(a != a);\n"
                         "    $U r = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;\n"
                         "    return ($T)((r & ~nan) | (u & nan));\n}");
    } else if (!is_vector) {
        tci_cd_define_soft(e, p);
    } else if (!tci_cd_define_builtin(e, p, n_args)) {
        tci_cd_define_lanes(e, cd->d.prim(&cd->d, p, e->t, e->to, 1, 0), n_args);
    }
}
/* ---- src/cpu/dialect.c ---- */
/* cpu/dialect.c - the C dialect: how types, prims and memory accesses are spelled for gcc, clang
 * and tcc.
 *
 * In: requests by name (emit/dialect.h). Out: names at once, and their definitions as C text
 * without any #include, for scalar code and for vectors of the compilers' vector extension. The one
 * idea: a request whose name is new has its definition expanded from a template, and whatever the
 * template mentions is requested on the way; a definition is appended to the text only when it is
 * complete, so the text is always in an order that compiles, and each name is in it once.
 * Prims are spelled in cpu/prims.c, memory rows in cpu/memory.c, plain C for what a processor or
 * compiler lacks in cpu/soft.c; recipes of ops/math.c are printed here, one local variable per
 * value. Invariant: no definition needs libm, libgcc or memcpy, nor touches an element that its row
 * excludes. */
#include <string.h>



static const char *tci_cd_type(tci_dialect *d, tc_dtype t, int lanes);

/* ---- definitions ---- */

static const char **tci_cd_slot(tci_cd *cd, const char *name)
{
    int at = (int)(tci_hash_bytes(name, strlen(name)).lo & (uint64_t)(cd->cap_names - 1));
    while (cd->names[at] && strcmp(cd->names[at], name) != 0) {
        at = (at + 1) & (cd->cap_names - 1);
    }
    return &cd->names[at];
}

TCI_FN const char *tci_cd_intern(tci_cd *cd, const char *name, bool *is_new)
{
    if (cd->n_names * 2 >= cd->cap_names) {
        const char **old = cd->names;
        int old_cap = cd->cap_names;
        cd->cap_names = old_cap ? old_cap * 2 : 128;
        cd->names = TCI_NEW_ARRAY(cd->d.s, const char *, cd->cap_names);
        for (int i = 0; i < old_cap; i++) {
            if (old[i]) {
                *tci_cd_slot(cd, old[i]) = old[i];
            }
        }
    }
    const char **slot = tci_cd_slot(cd, name);
    *is_new = *slot == NULL;
    if (*is_new) {
        *slot = tci_scratch_copy(cd->d.s, name, strlen(name) + 1);
        cd->n_names++;
    }
    return *slot;
}

/* "{v16si}": a vector type as x86 builtins declare it. */
static const char *tci_cd_machine_type(tci_cd *cd, const char *text, int n)
{
    static const struct {
        char code[3];
        const char *ctype;
        int bytes;
    } rows[] = {{"qi", "char", 1},      {"hi", "short", 2}, {"si", "int", 4},
                {"di", "long long", 8}, {"sf", "float", 4}, {"df", "double", 8}};
    bool is_new;
    const char *name = tci_cd_intern(cd, tci_scratch_printf(cd->d.s, "tc_%.*s", n, text), &is_new);
    if (is_new) {
        int lanes = 0;
        for (int i = 1; i < n - 2; i++) {
            lanes = lanes * 10 + (text[i] - '0');
        }
        for (int i = 0; i < TCI_COUNT(rows); i++) {
            if (strncmp(rows[i].code, text + n - 2, 2) == 0) {
                tci_str_printf(&cd->out, "typedef %s %s __attribute__((vector_size(%d)));\n",
                               rows[i].ctype, name, lanes * rows[i].bytes);
            }
        }
    }
    return name;
}

static const char *tci_cd_letter(const tci_cd_env *e, char letter)
{
    tci_cd *cd = e->cd;
    int bytes = tci_dtype_get(e->t)->bytes;
    switch (letter) {
    case 'T':
        return tci_cd_type(&cd->d, e->t, e->lanes);
    case 'E':
        return tci_cd_type(&cd->d, e->t, 1);
    case 'R':
        return tci_cd_type(&cd->d, e->to, e->lanes);
    case 'I':
        return tci_cd_type(&cd->d, tci_cd_sint(bytes), e->lanes);
    case 'U':
        return tci_cd_type(&cd->d, tci_cd_uint(bytes), e->lanes);
    case 'V':
        return tci_cd_type(&cd->d, tci_cd_uint(bytes), 1);
    case 'B':
        return tci_cd_type(&cd->d, TC_BOOL, e->lanes);
    case 'A':
        return tci_cd_unaligned(cd, e->t, e->lanes);
    case 'L':
        return tci_scratch_printf(cd->d.s, "%d", e->lanes);
    case 'W':
        return tci_scratch_printf(cd->d.s, "%d", 8 * bytes);
    case 'f':
        return e->t == TC_F32 ? "f" : "";
    case 'C':
        return e->t == TC_F32 ? "F32" : "F64";
    case 'n':
        return e->name;
    default:
        return e->piece[letter - '1'];
    }
}

/* "@lt": the BASE prim of that name on the template's type; "@@lt": on its element. */
static const char *tci_cd_mention(const tci_cd_env *e, const char *word, int n, bool scalar)
{
    tci_cd *cd = e->cd;
    for (int p = 0; p < TCI_P_BASE_COUNT; p++) {
        const char *name = tci_prim_get((tci_prim)p)->name;
        if ((int)strlen(name) == n && strncmp(name, word, (size_t)n) == 0) {
            return cd->d.prim(&cd->d, (tci_prim)p, e->t, e->t, scalar ? 1 : e->lanes, 0);
        }
    }
    TCI_ASSERT(cd->d.s, !"a template names an unknown prim");
    return "";
}

static bool tci_cd_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static void tci_cd_expand(const tci_cd_env *e, const char *text, tci_str *out)
{
    tci_cd *cd = e->cd;
    while (*text) {
        size_t plain = strcspn(text, "$@{");
        tci_str_add_n(out, text, plain);
        text += plain;
        if (*text == '$') {
            const char *meaning = tci_cd_letter(e, text[1]);
            if (text[1] >= '1' && text[1] <= '4') {
                tci_cd_expand(e, meaning, out); /* pieces may be templates themselves */
            } else {
                tci_str_add(out, meaning);
            }
            text += 2;
        } else if (*text == '@') {
            bool scalar = text[1] == '@';
            const char *word = text + 1 + scalar;
            int n = 0;
            while (tci_cd_is_word(word[n])) {
                n++;
            }
            tci_str_add(out, tci_cd_mention(e, word, n, scalar));
            text = word + n;
        } else if (*text == '{' && text[1] == 'v' && text[2] >= '0' && text[2] <= '9') {
            int n = (int)strcspn(text + 1, "}");
            tci_str_add(out, tci_cd_machine_type(cd, text + 1, n));
            text += n + 2;
        } else if (*text) {
            tci_str_add_n(out, text, 1);
            text++;
        }
    }
}

TCI_FN void tci_cd_define(const tci_cd_env *e, const char *text)
{
    tci_str own = {0};
    own.s = e->cd->d.s;
    tci_cd_expand(e, text, &own);
    tci_str_add_n(&e->cd->out, tci_str_text(&own), own.n);
    tci_str_add(&e->cd->out, "\n");
}

TCI_FN const char *tci_cd_list(tci_cd *cd, int n, const char *format, int step, int modulo)
{
    tci_str list = {0};
    list.s = cd->d.s;
    for (int i = 0; i < n; i++) {
        int k = i * step % modulo;
        tci_str_add(&list, i ? ", " : "");
        for (const char *c = format; *c; c++) {
            if (*c == '#') {
                tci_str_printf(&list, "%d", k);
            } else {
                tci_str_add_n(&list, c, 1);
            }
        }
    }
    return tci_str_text(&list);
}

/* ---- types ---- */

TCI_FN tc_dtype tci_cd_sint(int bytes)
{
    return bytes == 1 ? TC_I8 : bytes == 2 ? TC_I16 : bytes == 4 ? TC_I32 : TC_I64;
}

TCI_FN tc_dtype tci_cd_uint(int bytes)
{
    return bytes == 1 ? TC_U8 : bytes == 2 ? TC_U16 : bytes == 4 ? TC_U32 : TC_U64;
}

TCI_FN tc_dtype tci_cd_mask_dtype(const tci_cd *cd, int lanes)
{
    int bytes = cd->d.vector_bytes / lanes;
    return tci_cd_sint(bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1);
}

TCI_FN const char *tci_cd_suffix(tci_cd *cd, tc_dtype t, int lanes)
{
    const char *name = tci_dtype_get(t)->name;
    return lanes == 1 ? name : tci_scratch_printf(cd->d.s, "%sx%d", name, lanes);
}

static const char *tci_cd_type(tci_dialect *d, tc_dtype t, int lanes)
{
    tci_cd *cd = d->state;
    bool is_new;
    const char *name = tci_scratch_printf(d->s, "tc_%s", tci_cd_suffix(cd, t, lanes));
    name = tci_cd_intern(cd, name, &is_new);
    if (!is_new) {
        return name;
    }
    tc_dtype element = t == TC_BOOL && lanes > 1 ? tci_cd_mask_dtype(cd, lanes) : t;
    const tci_dtype_info *info = tci_dtype_get(element);
    const char *ctype = t == TC_BOOL && lanes == 1 ? "int" : info->ctype;
    tci_str_printf(&cd->out, "typedef %s %s", ctype, name);
    if (lanes > 1) {
        tci_str_printf(&cd->out, " __attribute__((vector_size(%d)))", info->bytes * lanes);
    }
    tci_str_add(&cd->out, ";\n");
    return name;
}

TCI_FN const char *tci_cd_unaligned(tci_cd *cd, tc_dtype t, int lanes)
{
    bool is_new;
    const char *type = tci_cd_type(&cd->d, t, lanes);
    const char *name = tci_cd_intern(cd, tci_scratch_printf(cd->d.s, "%s_u", type), &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef %s %s __attribute__((aligned(1), may_alias));\n", type,
                       name);
    }
    return name;
}

/* ---- helpers and recipes ---- */

static void tci_cd_define_helper(tci_cd *cd, int id)
{
    const tci_helper *h = tci_helper_get(id);
    bool is_new;
    const char *name = tci_cd_intern(cd, h->name, &is_new);
    if (!is_new) {
        return;
    }
    for (int i = 0; i < TCI_COUNT(h->needs); i++) {
        if (h->needs[i] != TCI_H_NONE) {
            tci_cd_define_helper(cd, h->needs[i]);
        }
    }
    tci_cd_soft(cd, "TC_FMA_F32");
    tci_cd_soft(cd, "TC_FMA_F64");
    (void)name;
    tci_str_add(&cd->out, h->text);
    tci_str_add(&cd->out, "\n");
}

/* The helper on the lanes that m marks, 0 elsewhere. Kept out of line, so that its registers do not
 * weigh on the code that almost never calls it. */
static const char *tci_cd_lanes_of(tci_cd *cd, int id, tc_dtype t, int lanes)
{
    const tci_helper *h = tci_helper_get(id);
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_lanes_%s_%s", h->name,
                                          tci_cd_suffix(cd, t, lanes));
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_cd_env e = {cd, t, t, lanes, name, {NULL}};
        tci_cd_define_helper(cd, id);
        e.piece[0] = h->arity == 2 ? "$T a, $T b" : "$T a";
        e.piece[1] = h->name;
        e.piece[2] = h->arity == 2 ? "a[i], b[i]" : "a[i]";
        tci_cd_define(&e, "static __attribute__((noinline)) $T $n($1, $B m) {\n    $T r = {0};\n"
                          "    for (int i = 0; i < $L; i++) {\n        if (m[i]) {\n"
                          "            r[i] = $2($3);\n        }\n    }\n    return r;\n}");
    }
    return name;
}

/* LANE1: one test, and the helper where it says so. */
static void tci_cd_define_lane1(const tci_cd_env *outer, int id)
{
    const tci_helper *h = tci_helper_get(id);
    tci_cd_env env = *outer;
    tci_cd_env *e = &env;
    tci_cd *cd = e->cd;
    e->piece[0] = h->arity == 2 ? "$T a, $T b" : "$T a";
    e->piece[1] = h->name;
    e->piece[2] = h->arity == 2 ? "a, b" : "a";
    if (e->lanes == 1) {
        tci_cd_define_helper(cd, id);
        tci_cd_define(e, "TC_I $T $n($1, tc_bool m) { return m ? ($T)$2($3) : 0; }");
        return;
    }
    e->piece[1] = tci_cd_lanes_of(cd, id, e->t, e->lanes);
    e->piece[3] = tci_cd_any(cd, e->lanes);
    tci_cd_define(e, "TC_I $T $n($1, $B m) {\n    if (__builtin_expect($4(m), 0)) {\n"
                     "        return $2($3, m);\n    }\n    return ($T){0};\n}");
}

/* ---- recipes ---- */

/* SELECT(m, LANE1(.., m), fast): the whole belongs behind the test. */
static bool tci_cd_is_patch(const tci_recipe *r, int i)
{
    const tci_step_inst *step = &r->insts[i];
    if (step->kind != TCI_RECIPE_PRIM || step->prim != TCI_P_SELECT) {
        return false;
    }
    const tci_step_inst *slow = &r->insts[step->args[1]];
    return slow->kind == TCI_RECIPE_PRIM && slow->prim == TCI_P_LANE1 &&
           slow->args[slow->n_args - 1] == step->args[0];
}

static bool tci_cd_is_patched(const tci_recipe *r, int i)
{
    for (int k = i + 1; k < r->n; k++) {
        if (tci_cd_is_patch(r, k) && r->insts[k].args[1] == i) {
            return true;
        }
    }
    return false;
}

/* "r" where the mask is nowhere true, with one test; the mask is the value of step `mask`. */
static const char *tci_cd_patch(tci_cd *cd, const tci_recipe *r, int i, int lanes)
{
    const tci_step_inst *step = &r->insts[i], *slow = &r->insts[step->args[1]];
    const tci_step_inst *mask = &r->insts[step->args[0]];
    tci_dialect *d = &cd->d;
    tc_dtype t = (tc_dtype)step->dtype;
    const char *args = slow->n_args == 3
                           ? tci_scratch_printf(d->s, "v%d, v%d", slow->args[0], slow->args[1])
                           : tci_scratch_printf(d->s, "v%d", slow->args[0]);
    const char *test = tci_scratch_printf(d->s, "%s(v%d)", tci_cd_any(cd, lanes), step->args[0]);
    if (mask->kind == TCI_RECIPE_PRIM && mask->prim == TCI_P_LT) {
        const char *any = tci_cd_any_less(cd, (tc_dtype)r->insts[mask->args[0]].dtype, lanes);
        test = tci_scratch_printf(d->s, "%s(v%d, v%d)", any, mask->args[0], mask->args[1]);
    }
    const char *select = d->prim(d, TCI_P_SELECT, t, t, lanes, 0);
    return tci_scratch_printf(
        d->s,
        "v%d;\n    if (__builtin_expect(%s, 0)) {\n"
        "        v%d = %s(v%d, %s(%s, v%d), v%d);\n    }\n",
        step->args[2], test, i, select, step->args[0], tci_cd_lanes_of(cd, slow->imm, t, lanes),
        args, step->args[0], step->args[2]);
}

/* The expression of a step that is a prim. */
static const char *tci_cd_step(tci_cd *cd, const tci_recipe *r, int i, int lanes)
{
    const tci_step_inst *step = &r->insts[i], *mask = &r->insts[step->args[0]];
    tci_dialect *d = &cd->d;
    tc_dtype t = (tc_dtype)step->dtype;
    tc_dtype operand = (tc_dtype)r->insts[step->args[step->prim == TCI_P_SELECT]].dtype;
    tci_str text = {0};
    text.s = d->s;
    if (step->prim == TCI_P_SELECT && mask->kind == TCI_RECIPE_PRIM) {
        const char *pick = tci_cd_pick(cd, (tci_prim)mask->prim,
                                       (tc_dtype)r->insts[mask->args[0]].dtype, t, lanes);
        if (pick) {
            return tci_scratch_printf(d->s, "%s(v%d, v%d, v%d, v%d);\n", pick, mask->args[0],
                                      mask->args[1], step->args[1], step->args[2]);
        }
    }
    tci_str_add(&text, d->prim(d, (tci_prim)step->prim, operand, t, lanes, step->imm));
    for (int k = 0; k < step->n_args; k++) {
        tci_str_printf(&text, "%sv%d", k ? ", " : "(", step->args[k]);
    }
    tci_str_add(&text, ");\n");
    return tci_str_text(&text);
}

static void tci_cd_define_recipe(const tci_cd_env *e, tci_prim p)
{
    tci_cd *cd = e->cd;
    tci_dialect *d = &cd->d;
    const tci_recipe *r = tci_math_recipe(p, e->t);
    tci_str text = {0};
    text.s = d->s;
    tci_str_printf(&text, "TC_I $T $n(%s) {\n",
                   tci_prim_get(p)->arity == 2 ? "$T a, $T b" : "$T a");
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *step = &r->insts[i];
        tc_dtype t = (tc_dtype)step->dtype;
        if (e->lanes > 1 && tci_cd_is_patched(r, i)) {
            continue;
        }
        tci_str_printf(&text, "    %s v%d = ", d->type(d, t, e->lanes), i);
        if (step->kind == TCI_RECIPE_ARG) {
            tci_str_printf(&text, "%c;\n", 'a' + step->imm);
        } else if (step->kind == TCI_RECIPE_CONST) {
            tci_str_printf(&text, "%s(%s);\n", d->mem(d, TCI_MEM_SPLAT, t, t, e->lanes),
                           d->constant(d, t, step->value));
        } else if (e->lanes > 1 && tci_cd_is_patch(r, i)) {
            tci_str_add(&text, tci_cd_patch(cd, r, i, e->lanes));
        } else {
            tci_str_add(&text, tci_cd_step(cd, r, i, e->lanes));
        }
    }
    tci_str_printf(&text, "    return v%d;\n}", r->n - 1);
    tci_cd_define(e, tci_str_text(&text));
}

/* ---- the dialect ---- */

static void tci_cd_define_prim(const tci_cd_env *e, tci_prim p, int imm)
{
    if (tci_prim_is_math(p)) {
        tci_cd_define_recipe(e, p);
    } else if (p == TCI_P_LANE1) {
        tci_cd_define_lane1(e, imm);
    } else {
        tci_cd_define_base(e, p);
    }
}

static const char *tci_cd_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                               int imm)
{
    tci_cd *cd = d->state;
    const tci_prim_info *info = tci_prim_get(p);
    const char *type = tci_cd_suffix(cd, t, lanes);
    const char *name;
    bool is_new;
    if (p == TCI_P_LANE1) {
        name = tci_scratch_printf(d->s, "tc_lane1_%s_%s", tci_helper_get(imm)->name, type);
    } else if (info->result == 'O') {
        name = tci_scratch_printf(d->s, "tc_%s_%s_%s", info->name, type, tci_dtype_get(to)->name);
    } else {
        name = tci_scratch_printf(d->s, "tc_%s_%s", info->name, type);
    }
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_cd_env e = {cd, t, info->result == 'O' ? to : t, lanes, name, {NULL}};
        tci_cd_define_prim(&e, p, imm);
    }
    return name;
}

/* Hex floats with an integer mantissa: no decimal point, so the host's locale cannot change the
 * text. */
static const char *tci_cd_constant_float(tci_dialect *d, tc_dtype t, double x)
{
    const char *f = t == TC_F32 ? "f" : "";
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const char *sign = bits >> 63 ? "-" : "";
    int exponent = (int)(bits >> 52) & 2047;
    uint64_t mantissa = bits & 0xfffffffffffffu;
    if (exponent == 2047) { /* a quotient by zero would be computed at each call */
        tci_cd_soft(d->state, "TC_INF");
        return mantissa ? tci_scratch_printf(d->s, "TC_NAN%s", f)
                        : tci_scratch_printf(d->s, "TC_INF%s(%s)", f, sign);
    }
    if (exponent) {
        mantissa |= (uint64_t)1 << 52;
    }
    exponent = (exponent ? exponent : 1) - 1075;
    while (mantissa && !(mantissa & 1)) {
        mantissa >>= 1;
        exponent++;
    }
    return tci_scratch_printf(d->s, "(%s0x%llxp%d%s)", sign, (unsigned long long)mantissa,
                              mantissa ? exponent : 0, f);
}

static const char *tci_cd_constant(tci_dialect *d, tc_dtype t, tci_value v)
{
    switch (t) {
    case TC_BOOL:
        return v.i ? "1" : "0";
    case TC_U32:
        return tci_scratch_printf(d->s, "%uu", (unsigned)v.u);
    case TC_U64:
        return tci_scratch_printf(d->s, "%lluull", (unsigned long long)v.u);
    case TC_I64:
        return v.i == INT64_MIN ? "(-9223372036854775807ll - 1)"
                                : tci_scratch_printf(d->s, "(%lldll)", (long long)v.i);
    default:
        break;
    }
    if (tci_dtype_is_float(t)) {
        return tci_cd_constant_float(d, t, t == TC_F64 ? v.f : (double)(float)v.f);
    }
    return v.i == INT32_MIN ? "(-2147483647 - 1)" : tci_scratch_printf(d->s, "(%d)", (int)v.i);
}

/* TC_GCC and TC_HAS(x): this compiler has the x86 builtins as gcc, as clang, spells them.
 * TC_CONVERT: it has __builtin_convertvector. */
static void tci_cd_prelude(tci_dialect *d, tci_str *out)
{
    tci_cd *cd = d->state;
    tci_str_add(
        out,
        "#if defined(__clang__) && (defined(__FMA__) || !defined(__x86_64__))\n"
        "#define TC_HAS(x) __has_builtin(x)\n#else\n#define TC_HAS(x) 0\n#endif\n"
        "#if defined(__GNUC__) && !defined(__clang__) && !defined(__TINYC__) && defined(__FMA__)\n"
        "#define TC_GCC 1\n#else\n#define TC_GCC 0\n#endif\n"
        "#if defined(__clang__)\n#define TC_CONVERT 1\n"
        "#elif defined(__GNUC__) && __GNUC__ >= 9\n#define TC_CONVERT 1\n"
        "#else\n#define TC_CONVERT 0\n#endif\n"
        "#if defined(__TINYC__)\n#define TC_I static inline\n#else\n"
        "#define TC_I static inline __attribute__((always_inline))\n#endif\n");
    tci_str_add_n(out, tci_str_text(&cd->out), cd->out.n);
}

static void tci_cd_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                        int n_literals)
{
    const char *word = d->type(d, TC_I64, 1);
    (void)l;
    (void)n_literals;
    tci_str_printf(
        out,
        "__attribute__((visibility(\"default\")))\n"
        "void %s(void *const *bufs, const %s *lits, %s *fault, %s task_begin, %s task_end)\n{\n",
        symbol, word, word, word, word);
}

TCI_FN tci_dialect *tci_dialect_c(tci_scratch *s, int vector_bytes)
{
    tci_cd *cd = TCI_NEW(s, tci_cd);
    cd->d.name = "c";
    cd->d.restrict_word = "__restrict__";
    cd->d.local_word = "";
    cd->d.head = tci_cd_head;
    cd->d.vector_bytes = vector_bytes;
    cd->d.s = s;
    cd->d.state = cd;
    cd->d.prim = tci_cd_prim;
    cd->d.mem = tci_cd_mem;
    cd->d.type = tci_cd_type;
    cd->d.constant = tci_cd_constant;
    cd->d.prelude = tci_cd_prelude;
    cd->out.s = s;
    return &cd->d;
}
/* ---- src/cpu/cc.c ---- */
/* cpu/cc.c - finds and runs the system's C compiler.
 *
 * In: source texts and the paths of the objects wanted. Out: shared objects, or a status with the
 * command and what the compiler said. No shell is involved: every argument is an element of a
 * vector.
 *
 * Flags. What decides results is fixed: no contraction, wrapping integers, no strict aliasing, no
 * errno. gcc works at -O1 plus four passes of -O2 (tci_cc_gcc_flags), which compiles a sixth faster
 * than -O2 and gives the same speed on code that is explicit about vectors. Of these,
 * -fexpensive-optimizations is what fuses multiply-adds of tiles, and without -fcaller-saves the
 * rare call of a slow path keeps every constant of a loop in memory. clang inlines only from -O2;
 * its loops must not become calls of memset and memcpy. Generated code includes nothing and calls
 * nothing but compiler helpers, so no libc is linked. Nothing unwinds through a kernel: the tables
 * for that, a fortieth of the time, are left out unless the user debugs. tcc ignores vector types
 * without a word, so its sources are scalar (tc_backend_compiler.vector_bytes).
 *
 * A host built with the address sanitizer gets instrumented kernels when the compiler is of its
 * own kind: overruns inside kernels are then reported too. */
/* ---- src/cpu/cc.h ---- */
/* cpu/cc.h - the system's C compiler. */
#ifndef TCI_CPU_CC_H
#define TCI_CPU_CC_H


typedef enum tci_cc_kind { TCI_CC_UNKNOWN, TCI_CC_GCC, TCI_CC_CLANG, TCI_CC_TCC } tci_cc_kind;

/* The compiler that `wanted` names (NULL: cc, gcc, clang, tcc from PATH). False: there is none. */
TCI_FN bool tci_cc_find(const char *wanted, tc_backend_compiler *compiler);
/* Told from the name and what it links to; nothing is run. */
TCI_FN tci_cc_kind tci_cc_kind_of(const char *path);
/* Compiles build->n sources at once, a process each. *why (static text) says what kind of
 * failure it was. */
TCI_FN tc_status tci_cc_build(tc_build *build, const tci_target *target, const char **why);

#endif

/* ---- src/cpu/cc.c, continued ---- */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>


#if defined(__SANITIZE_ADDRESS__)
#define TCI_CC_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TCI_CC_HOST_ASAN 1
#endif
#endif
#ifndef TCI_CC_HOST_ASAN
#define TCI_CC_HOST_ASAN 0
#endif
#ifdef __clang__
#define TCI_CC_HOST_KIND TCI_CC_CLANG
#else
#define TCI_CC_HOST_KIND TCI_CC_GCC
#endif

enum { TCI_CC_MAX_ARGS = 64, TCI_CC_LOG_BYTES = 1 << 16 };

/* ---- which compiler ---- */

static const char *tci_cc_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tci_cc_kind tci_cc_kind_of_name(const char *name)
{
    if (strstr(name, "clang")) {
        return TCI_CC_CLANG;
    }
    if (strstr(name, "tcc")) {
        return TCI_CC_TCC;
    }
    return strstr(name, "gcc") ? TCI_CC_GCC : TCI_CC_UNKNOWN;
}

TCI_FN tci_cc_kind tci_cc_kind_of(const char *path)
{
    tci_cc_kind kind = tci_cc_kind_of_name(tci_cc_base_name(path));
    if (kind == TCI_CC_UNKNOWN) { /* "cc": see where it leads */
        char *real = realpath(path, NULL);
        kind = real ? tci_cc_kind_of_name(tci_cc_base_name(real)) : kind;
        free(real);
    }
    return kind;
}

TCI_FN bool tci_cc_find(const char *wanted, tc_backend_compiler *compiler)
{
    static const char *const usual[] = {"cc", "gcc", "clang", "tcc"};
    tci_str path = {0};
    bool found = false;
    if (wanted && wanted[0]) {
        found = tci_os_find_program(wanted, &path);
    } else {
        for (int i = 0; i < TCI_COUNT(usual) && !found; i++) {
            found = tci_os_find_program(usual[i], &path);
        }
    }
    memset(compiler, 0, sizeof(*compiler));
    found = found && !path.failed && path.n < sizeof(compiler->path)
            && tci_os_stat(path.text, &compiler->bytes, &compiler->mtime_ns);
    if (found) {
        memcpy(compiler->path, path.text, path.n + 1);
        compiler->vector_bytes = tci_cc_kind_of(path.text) == TCI_CC_TCC ? 0 : 64;
    }
    tci_str_free(&path);
    return found;
}

/* ---- one process ---- */

typedef struct tci_cc_task {
    const char *args[TCI_CC_MAX_ARGS];
    int n_args;
    int64_t timeout_ms;
    tci_str source_path, log; /* heap */
    tci_spawn result;
    int exit_code;
    pthread_t thread;
} tci_cc_task;

static void tci_cc_arg(tci_cc_task *t, const char *arg)
{
    if (t->n_args < TCI_CC_MAX_ARGS - 1) {
        t->args[t->n_args++] = arg;
    }
}

/* Lists that end in NULL. */
static const char *const tci_cc_gcc_flags[] = {"-O1", "-fexpensive-optimizations", "-fgcse",
                                               "-fcaller-saves", "-fipa-ra", NULL};
static const char *const tci_cc_clang_flags[] = {"-O2", "-fno-builtin-memset",
                                                 "-fno-builtin-memcpy", NULL};
static const char *const tci_cc_other_flags[] = {"-O2", NULL};
static const char *const tci_cc_common_flags[] = {
    "-fPIC",          "-ffp-contract=off",     "-fwrapv", "-fno-strict-aliasing",
    "-fno-math-errno", "-fno-stack-protector", "-w",      NULL};

static void tci_cc_list(tci_cc_task *t, const char *const *list)
{
    for (; *list; list++) {
        tci_cc_arg(t, *list);
    }
}

static void tci_cc_fill_args(tci_cc_task *t, const tc_build *build, const tci_target *target,
                             const char *output)
{
    tci_cc_kind kind = tci_cc_kind_of(build->compiler);
    bool asan = TCI_CC_HOST_ASAN && kind == TCI_CC_HOST_KIND;
    tci_cc_arg(t, build->compiler);
    tci_cc_arg(t, "-shared");
    if (kind == TCI_CC_TCC) {
        tci_cc_arg(t, "-nostdlib");
        tci_cc_arg(t, "-w");
    } else {
        tci_cc_list(t, kind == TCI_CC_GCC     ? tci_cc_gcc_flags
                       : kind == TCI_CC_CLANG ? tci_cc_clang_flags
                                              : tci_cc_other_flags);
        tci_cc_list(t, tci_cc_common_flags);
        for (int i = 0; i < target->n_flags; i++) {
            tci_cc_arg(t, target->flags[i]);
        }
        tci_cc_arg(t, asan ? "-fsanitize=address" : "-nostdlib");
    }
    if (build->keep) {
        tci_cc_arg(t, "-g");
    } else if (kind != TCI_CC_TCC && !asan) {
        tci_cc_arg(t, "-fno-asynchronous-unwind-tables");
    }
    tci_cc_arg(t, "-o");
    tci_cc_arg(t, output);
    if (kind != TCI_CC_TCC) {
        tci_cc_arg(t, "-x");
        tci_cc_arg(t, "c");
    }
    tci_cc_arg(t, t->source_path.text);
    if (kind != TCI_CC_TCC) {
        tci_cc_arg(t, "-x");
        tci_cc_arg(t, "none");
        tci_cc_arg(t, "-lgcc");
    }
    t->args[t->n_args] = NULL;
}

static void *tci_cc_run(void *arg)
{
    tci_cc_task *t = arg;
    t->result = tci_os_run(t->args, t->timeout_ms, TCI_CC_LOG_BYTES, &t->log, &t->exit_code);
    return NULL;
}

/* ---- a build ---- */

static bool tci_cc_write_source(tci_cc_task *t, const tc_build *build, int i)
{
    tci_str_printf(&t->source_path, "%s/tc_%d.c", build->directory, i);
    return !t->source_path.failed
           && tci_os_publish(t->source_path.text, build->sources[i], strlen(build->sources[i]),
                             NULL);
}

/* The second process runs beside the first, from a thread that lives as long as it does. */
static void tci_cc_run_all(tci_cc_task *tasks, int n)
{
    bool beside = n > 1 && pthread_create(&tasks[1].thread, NULL, tci_cc_run, &tasks[1]) == 0;
    tci_cc_run(&tasks[0]);
    if (beside) {
        pthread_join(tasks[1].thread, NULL);
    } else if (n > 1) {
        tci_cc_run(&tasks[1]);
    }
}

/* The command, what it printed, and how it ended. */
static const char *tci_cc_tell(const tci_cc_task *t, tc_build *build)
{
    tci_str text = {0};
    const char *why = NULL;
    for (int i = 0; i < t->n_args; i++) {
        tci_str_printf(&text, "%s%s", i ? " " : "", t->args[i]);
    }
    tci_str_printf(&text, "\n%s", tci_str_text(&t->log));
    if (t->result == TCI_SPAWN_MISSING) {
        why = "the compiler cannot be started";
        tci_str_printf(&text, "\n%s", why);
    } else if (t->result == TCI_SPAWN_TIMEOUT) {
        why = "the compiler took too long";
        tci_str_printf(&text, "\nkilled after %.3g s", (double)t->timeout_ms / 1000);
    } else if (t->result == TCI_SPAWN_FAILED) {
        why = "the compiler failed";
        tci_str_printf(&text, "\nended with code %d", t->exit_code);
    }
    build->say(build->say_arg, tci_str_text(&text));
    tci_str_free(&text);
    return why;
}

TCI_FN tc_status tci_cc_build(tc_build *build, const tci_target *target, const char **why)
{
    tci_cc_task tasks[2];
    int n = TCI_MIN(build->n, 2);
    bool written = true;
    *why = NULL;
    memset(tasks, 0, sizeof(tasks));
    for (int i = 0; i < n && written; i++) {
        tasks[i].timeout_ms = build->timeout_ms;
        written = tci_cc_write_source(&tasks[i], build, i);
        if (written) {
            tci_cc_fill_args(&tasks[i], build, target, build->outputs[i]);
        }
    }
    if (written) {
        tci_cc_run_all(tasks, n);
        for (int i = 0; i < n; i++) {
            build->processes += tasks[i].result != TCI_SPAWN_MISSING;
            const char *this_why = tci_cc_tell(&tasks[i], build);
            *why = *why ? *why : this_why;
        }
    } else {
        *why = "the source cannot be written";
        build->say(build->say_arg, *why);
    }
    for (int i = 0; i < n; i++) {
        tci_str_free(&tasks[i].source_path);
        tci_str_free(&tasks[i].log);
    }
    return !written ? TC_ERR_IO : *why ? TC_ERR_COMPILER : TC_OK;
}

#undef TCI_CC_HOST_ASAN
#undef TCI_CC_HOST_KIND
/* ---- src/cpu/backend.c ---- */
/* cpu/backend.c - the "cpu" backend: C source by the system's compiler, run by the host's threads.
 *
 * The first user of the seam in api/backend.h. Kernels are plain host functions, so there is no
 * launch, no device memory and nothing to wait for. */

#include <string.h>


enum { TCI_CPU_WIDTHS = 8 };

/* Targets handed out so far: their compiler flags are found again by the features text. */
static struct {
    tci_mutex lock;
    int n;
    tci_target targets[TCI_CPU_WIDTHS];
} tci_cpu_targets = {.lock = TCI_MUTEX_INIT};

static _Thread_local char tci_cpu_error[512];

static void tci_cpu_say(const char *text, const char *detail)
{
    snprintf(tci_cpu_error, sizeof(tci_cpu_error), "%s%s", text, detail);
}

static tc_status tci_cpu_target(void *user, int vector_bits, tc_backend_target *out)
{
    tci_target t;
    (void)user;
    memset(&t, 0, sizeof(t));
    tci_target_detect(&t, vector_bits);
    memcpy(out->features, t.features, sizeof(out->features));
    out->vector_bytes = t.vector_bytes;
    out->usable = t.has_fma;
    if (!out->usable) {
        snprintf(out->why, sizeof(out->why), "the processor has no fused multiply-add");
    }
    tci_os_keep_over_fork(&tci_cpu_targets.lock, NULL);
    pthread_mutex_lock(&tci_cpu_targets.lock);
    bool known = false;
    for (int i = 0; i < tci_cpu_targets.n; i++) {
        known |= !strcmp(tci_cpu_targets.targets[i].features, t.features);
    }
    if (!known && tci_cpu_targets.n < TCI_CPU_WIDTHS) {
        tci_cpu_targets.targets[tci_cpu_targets.n++] = t;
    }
    pthread_mutex_unlock(&tci_cpu_targets.lock);
    return TC_OK;
}

static tc_status tci_cpu_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    if (tci_cc_find(wanted, compiler)) {
        return TC_OK;
    }
    if (wanted && wanted[0]) {
        tci_cpu_say("no such compiler: ", wanted);
    } else {
        tci_cpu_say("no C compiler on PATH (tried cc, gcc, clang, tcc)", "");
    }
    return TC_ERR_COMPILER;
}

static tc_status tci_cpu_compile(void *user, tc_build *build)
{
    const char *why;
    tci_target target;
    (void)user;
    memset(&target, 0, sizeof(target));
    pthread_mutex_lock(&tci_cpu_targets.lock);
    for (int i = 0; i < tci_cpu_targets.n; i++) {
        if (!strcmp(tci_cpu_targets.targets[i].features, build->features)) {
            target = tci_cpu_targets.targets[i];
        }
    }
    pthread_mutex_unlock(&tci_cpu_targets.lock);
    tc_status status = tci_cc_build(build, &target, &why);
    if (status != TC_OK) {
        tci_cpu_say(why, "");
    }
    return status;
}

static tc_status tci_cpu_module_load(void *user, const char *path, void **module)
{
    char why[256];
    (void)user;
    *module = tci_os_dlopen(path, why);
    if (!*module) {
        tci_cpu_say(why, "");
    }
    return *module ? TC_OK : TC_ERR_BACKEND;
}

static void *tci_cpu_module_find(void *user, void *module, const char *symbol)
{
    (void)user;
    return tci_os_dlsym(module, symbol);
}

static void tci_cpu_module_free(void *user, void *module)
{
    (void)user;
    tci_os_dlclose(module);
}

static const char *tci_cpu_last_error(void *user)
{
    (void)user;
    return tci_cpu_error;
}

TCI_FN const tc_backend *tci_cpu_backend(void)
{
    static const tc_backend backend = {
        .name = "cpu",
        .dialect = "c",
        .target = tci_cpu_target,
        .compiler = tci_cpu_compiler,
        .compile = tci_cpu_compile,
        .module_load = tci_cpu_module_load,
        .module_find = tci_cpu_module_find,
        .module_free = tci_cpu_module_free,
        .last_error = tci_cpu_last_error,
    };
    return &backend;
}
