/* emit/c_prims.c - writes the C definitions of the scalar primitives (BASE rows of ops/prim.h).
 *
 * In: a template's meaning (emit/c_templates.h) and a prim. Out: its definition. Design: three
 * layers. An operator of the vector extension if there is one; else an x86 builtin for exactly that
 * operation, under TC_GCC or TC_HAS(builtin); else a loop over the lanes of the scalar
 * definition, which is plain C and the reference definition, which all others match bit for bit
 * (tests/cpu/test_dialect.c). Invariant: no operation of a definition is undefined in C for any
 * operand (wrapping apart: -fwrapv); a compiler may therefore fold constants freely. */
#include <string.h>

#include "c_templates.h"

/* ---- conversion of vectors, values known in range ---- */

TCI_FN const char *tci_c_dialect_to_register(int bytes)
{
    switch (bytes) {
    case 2: return "({v8hi}){(short)a}";
    case 4: return "({v4si}){(int)a}";
    case 8: return "({v2di}){(long long)a}";
    default: return "a";
    }
}

TCI_FN const char *tci_c_dialect_from_register(tci_c_dialect *cd, int bytes, const char *expression)
{
    switch (bytes) {
    case 2: return tci_scratch_printf(cd->d.s, "($R)(({v8hi})%s)[0]", expression);
    case 4: return tci_scratch_printf(cd->d.s, "($R)(({v4si})%s)[0]", expression);
    case 8: return tci_scratch_printf(cd->d.s, "($R)(({v2di})%s)[0]", expression);
    default: return tci_scratch_printf(cd->d.s, "($R)%s", expression);
    }
}

static char tci_c_dialect_size_letter(int bytes)
{
    return bytes == 1 ? 'b' : bytes == 2 ? 'w' : bytes == 4 ? 'd' : 'q';
}

static const char *tci_c_dialect_size_mode(int bytes)
{
    return bytes == 1 ? "qi" : bytes == 2 ? "hi" : bytes == 4 ? "si" : "di";
}

/* Template of gcc's expression for an integer vector `a` made wider: one vpmovzx or vpmovsx. */
static const char *tci_c_dialect_widen_int(tci_c_dialect *cd, tc_dtype from, int in, int out,
                                           int lanes)
{
    char sign = tci_dtype_is_signed(from) ? 's' : 'z';
    int register_bytes = TCI_MAX(in * lanes, 16);
    /* gcc 12 breaks off ("could not split insn") over 8 bytes made 64 when it knows that the rest
     * of the register is zero. */
    const char *half = in * lanes == 8 && out * lanes == 64 ? "({v2di}){(long long)a, (long long)a}"
                                                            : tci_c_dialect_to_register(in * lanes);
    const char *argument = tci_scratch_printf(cd->d.s, "({v%d%s})%s", register_bytes / in,
                                              tci_c_dialect_size_mode(in), half);
    const char *rest = out * lanes < 64 ? ""
                                        : tci_scratch_printf(cd->d.s, ", ({v%d%s}){0}, -1", lanes,
                                                             tci_c_dialect_size_mode(out));
    return tci_scratch_printf(cd->d.s, "($R)__builtin_ia32_pmov%cx%c%c%d%s(%s%s)", sign,
                              tci_c_dialect_size_letter(in), tci_c_dialect_size_letter(out),
                              out * lanes * 8, out * lanes < 64 ? "" : "_mask", argument, rest);
}

/* The same for narrower: one vpmov of AVX-512, else a byte shuffle. */
static const char *tci_c_dialect_narrow_int(tci_c_dialect *cd, int in, int out, int lanes)
{
    const char *low;
    if (cd->d.vector_bytes == 64) {
        int register_bytes = TCI_MAX(out * lanes, 16);
        low = tci_scratch_printf(cd->d.s,
                                 "__builtin_ia32_pmov%c%c%d_mask(({v%d%s})a, ({v%d%s}){0}, -1)",
                                 tci_c_dialect_size_letter(in), tci_c_dialect_size_letter(out),
                                 in * lanes * 8, lanes, tci_c_dialect_size_mode(in),
                                 register_bytes / out, tci_c_dialect_size_mode(out));
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
    return tci_c_dialect_from_register(cd, out * lanes, low);
}

/* gcc's expression where its own __builtin_convertvector takes the vector apart (seen in gcc 12),
 * else NULL. */
static const char *tci_c_dialect_convert_gcc(tci_c_dialect *cd, tc_dtype from, tc_dtype to,
                                             int lanes)
{
    int in = tci_dtype_get(from)->bytes;
    int out = tci_dtype_get(to)->bytes;
    int widest = TCI_MAX(in, out) * lanes;
    bool wide512 = widest == 64;
    if (cd->d.vector_bytes < 32 || widest > cd->d.vector_bytes || widest < 16) {
        return NULL;
    }
    if (tci_dtype_is_int(from) && tci_dtype_is_int(to)) {
        return out > in ? tci_c_dialect_widen_int(cd, from, in, out, lanes)
                        : tci_c_dialect_narrow_int(cd, in, out, lanes);
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

TCI_FN const char *tci_c_dialect_convert(tci_c_dialect *cd, tc_dtype from, tc_dtype to, int lanes)
{
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_cvt_%s_%s",
                                          tci_c_dialect_suffix(cd, from, lanes),
                                          tci_dtype_get(to)->name);
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (!is_new) {
        return name;
    }
    tci_c_dialect_env e = {cd, from, to, lanes, name, {NULL}};
    int in = tci_dtype_get(from)->bytes;
    int out = tci_dtype_get(to)->bytes;
    bool float_in = tci_dtype_is_float(from);
    bool float_out = tci_dtype_is_float(to);
    if (from == to || (in == out && !float_in && !float_out)) {
        tci_c_dialect_define(&e, "#define $n(a) (($R)(a))");
        return name;
    }
    if ((float_in && !float_out && out < 4) || (float_out && !float_in && in < 4)) {
        e.piece[0] = tci_c_dialect_convert(cd, from, TC_I32, lanes);
        e.piece[1] = tci_c_dialect_convert(cd, TC_I32, to, lanes);
        tci_c_dialect_define(&e, "#define $n(a) $2($1(a))");
        return name;
    }
    e.piece[0] = tci_c_dialect_convert_gcc(cd, from, to, lanes);
    e.piece[3] = tci_c_dialect_list(cd, lanes, "a[#]", 1, lanes);
    tci_c_dialect_define(&e, e.piece[0]
                                 ? "TC_I $R $n($T a) {\n#if TC_GCC\n    return $1;\n"
                                   "#else\n    return __builtin_convertvector(a, $R);\n#endif\n}"
                                 : "TC_I $R $n($T a) {\n#if TC_CONVERT\n"
                                   "    return __builtin_convertvector(a, $R);\n"
                                   "#else\n    return ($R){$4};\n#endif\n}");
    return name;
}

TCI_FN const char *tci_c_dialect_to_mask(tci_c_dialect *cd, tc_dtype t, int lanes)
{
    return tci_c_dialect_convert(cd, tci_c_dialect_sint(tci_dtype_get(t)->bytes),
                                 tci_c_dialect_mask_dtype(cd, lanes), lanes);
}

TCI_FN const char *tci_c_dialect_of_mask(tci_c_dialect *cd, tc_dtype t, int lanes)
{
    return tci_c_dialect_convert(cd, tci_c_dialect_mask_dtype(cd, lanes),
                                 tci_c_dialect_sint(tci_dtype_get(t)->bytes), lanes);
}

/* ---- prims by operator ---- */

/* where: '1' scalar, 'v' vector, '*' both; then the kinds of the operands' dtype: f float, s
 * signed, u unsigned, b bool (as a mask 0 / -1 in vectors). A macro uses each argument once. */
typedef struct tci_c_dialect_row {
    uint8_t prim;
    const char *where;
    const char *text;
} tci_c_dialect_row;

static const tci_c_dialect_row tci_c_dialect_rows[] = {
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
    {TCI_P_MULHI, "*b", "#define $n(a, b) ((a) & (b) & 0)"},
    {TCI_P_POWI, "1b", "#define $n(a, b) ((a) | !(b))"},
    {TCI_P_POWI, "vb", "#define $n(a, b) ((a) | ~(b))"},
    {TCI_P_POWI, "1u",
     "TC_I $T $n($T a, $T b) {\n    $T r = 1;\n    for (; b; b >>= 1) {\n"
     "        r = b & 1 ? ($T)(r * a) : r;\n        a = ($T)(a * a);\n    }\n    return r;\n}"},
    {TCI_P_POWI, "1s",
     "TC_I $T $n($T a, $T b) {\n    if (b < 0) {\n"
     "        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n    }\n"
     "    return ($T)$1(($V)a, ($V)b);\n}"},
    {TCI_P_POWI, "vu", /* until no lane has bits of its exponent left */
     "static __attribute__((noinline)) $T $n($T a, $T b) {\n    $T r = ($T){0} + 1;\n"
     "    while ($2(@lt(($T){0}, b))) {\n        $T odd = ($T){0} - (b & 1);\n"
     "        r *= (a & odd) | (1 & ~odd);\n        a *= a;\n        b >>= 1;\n    }\n"
     "    return r;\n}"},
    {TCI_P_POWI, "vs",
     "TC_I $T $n($T a, $T b) {\n    $T less = ($T)(b < 0);\n"
     "    $T back = (1 & ($T)(a == 1)) | ((($T){0} - (b & 1) | 1) & ($T)(a == -1));\n"
     "    return (less & back) | (~less & ($T)$1(($U)a, ($U)(b & ~less)));\n}"},
    {TCI_P_GCD, "*b", "#define $n(a, b) ((a) | (b))"},
    {TCI_P_GCD, "1u",
     "TC_I $T $n($T a, $T b) {\n    while (b) {\n        $T rest = a % b;\n        a = b;\n"
     "        b = rest;\n    }\n    return a;\n}"},
    {TCI_P_GCD, "1s",
     "TC_I $T $n($T a, $T b) {\n"
     "    return ($T)$1(($V)(a < 0 ? 0 - ($V)a : ($V)a), ($V)(b < 0 ? 0 - ($V)b : ($V)b));\n}"},
    /* Stein's: `low` is the highest power of 2 that divides both, y an odd multiple of it; of x,
     * which is halved, y is taken as often as that leaves an even one. What is negated has no bit
     * but low, so masks reach from there up, where all bits are; `less` spreads the borrow. No mask
     * register is in the chain from one x to the next. */
    {TCI_P_GCD, "vu",
     "static __attribute__((noinline)) $T $n($T a, $T b) {\n    $T low = (a | b) & -(a | b);\n"
     "    $T odd = -(b & low), x = (odd & a) | (~odd & b), y = (odd & b) | (~odd & a);\n"
     "    while ($2(@lt(($T){0}, x))) {\n        for (int i = 0; i < 8; i++) {\n"
     "            $T t = y & -(x & low), d = x - t;\n"
     "            $T less = ($T)(($I)((~x & t) | ((~x | t) & d)) >> ($W - 1));\n"
     "            y = (less & x) | (~less & y);\n"
     "            x = ((less & -d) | (~less & d)) >> 1;\n"
     "        }\n    }\n    return y;\n}"},
    {TCI_P_GCD, "vs",
     "TC_I $T $n($T a, $T b) {\n    $T m = ($T)(a < 0), k = ($T)(b < 0);\n"
     "    return ($T)$1(($U)((a ^ m) - m), ($U)((b ^ k) - k));\n}"},
    {TCI_P_SELECT, "1fsub", "#define $n(m, a, b) ((m) ? (a) : (b))"},
    {TCI_P_SELECT, "vb", "TC_I $T $n($T m, $T a, $T b) { return (m & a) | (~m & b); }"},
    {TCI_P_BITS, "1fsu", "TC_I $R $n($T a) { union { $T a; $R r; } u; u.a = a; return u.r; }"},
    {TCI_P_BITS, "vfsu", "#define $n(a) (($R)(a))"},
    {TCI_P_TOINT, "1f", "#define $n(a) (($R)(a))"},
    {TCI_P_TOINT, "vf", "#define $n(a) $1(a)"},
    {TCI_P_ROUND16, "*f", "#define $n(a) $1($2(a))"},
};

static char tci_c_dialect_kind(tc_dtype t)
{
    return t == TC_BOOL ? 'b' : tci_dtype_is_float(t) ? 'f' : tci_dtype_is_signed(t) ? 's' : 'u';
}

static const char *tci_c_dialect_find_row(tci_prim p, tc_dtype t, int lanes)
{
    for (int i = 0; i < TCI_COUNT(tci_c_dialect_rows); i++) {
        const tci_c_dialect_row *r = &tci_c_dialect_rows[i];
        bool here = r->where[0] == '*' || (r->where[0] == '1') == (lanes == 1);
        if (r->prim == p && here && strchr(r->where + 1, tci_c_dialect_kind(t))) {
            return r->text;
        }
    }
    return NULL;
}

/* ---- prims by builtin ---- */

/* x86 builtins, without "__builtin_ia32_". $1 is ps or pd, $2 is 256 for 32-byte vectors. */
typedef struct tci_c_dialect_builtin {
    uint8_t prim;
    const char *small_name, *small_args; /* 16 and 32 bytes, both compilers */
    const char *gcc_name, *gcc_args;     /* 64 bytes */
    const char *clang_name, *clang_args;
    const char *elementwise; /* newer clang; NULL none */
} tci_c_dialect_builtin;

static const tci_c_dialect_builtin tci_c_dialect_builtins[] = {
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

static const char *const tci_c_dialect_params[4] = {"", "$T a", "$T a, $T b", "$T a, $T b, $T c"};
static const char *const tci_c_dialect_args[4] = {"", "a", "a, b", "a, b, c"};

/* Body of last resort: the scalar prim on each lane. */
static const char *tci_c_dialect_lane_body(const tci_c_dialect_env *e, const char *scalar,
                                           int n_args)
{
    static const char *const elements[4] = {"", "a[#]", "a[#], b[#]", "a[#], b[#], c[#]"};
    static const char *const loops[4] = {"", "a[i]", "a[i], b[i]", "a[i], b[i], c[i]"};
    tci_scratch *s = e->cd->d.s;
    if (e->lanes <= 8) {
        const char *call = tci_scratch_printf(s, "%s(%s)", scalar, elements[n_args]);
        return tci_scratch_printf(s, "    return ($R){%s};\n",
                                  tci_c_dialect_list(e->cd, e->lanes, call, 1, e->lanes));
    }
    return tci_scratch_printf(
        s,
        "    $R r;\n    for (int i = 0; i < $L; i++) {\n        r[i] = %s(%s);\n"
        "    }\n    return r;\n",
        scalar, loops[n_args]);
}

static void tci_c_dialect_define_lanes(tci_c_dialect_env *e, const char *scalar, int n_args)
{
    e->piece[0] = tci_c_dialect_params[n_args];
    e->piece[1] = tci_c_dialect_lane_body(e, scalar, n_args);
    tci_c_dialect_define(e, "TC_I $R $n($1) {\n$2}");
}

TCI_FN void tci_c_dialect_define_parts(tci_c_dialect_env *e, tci_prim p, int native)
{
    tci_c_dialect *cd = e->cd;
    int n_args = tci_prim_get(p)->arity;
    const char *part = cd->d.type(&cd->d, e->t, native);
    e->piece[0] = tci_c_dialect_params[n_args];
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
    tci_c_dialect_define(e, "TC_I $T $n($1) {\n$2$3}");
}

static bool tci_c_dialect_define_builtin(tci_c_dialect_env *e, tci_prim p, int n_args)
{
    tci_c_dialect *cd = e->cd;
    tci_scratch *s = cd->d.s;
    const tci_c_dialect_builtin *b = NULL;
    for (int i = 0; i < TCI_COUNT(tci_c_dialect_builtins); i++) {
        b = tci_c_dialect_builtins[i].prim == p ? &tci_c_dialect_builtins[i] : b;
    }
    int bytes = tci_dtype_get(e->t)->bytes * e->lanes;
    if (!b || !tci_dtype_is_float(e->t) || bytes < 16) {
        return false;
    }
    if (bytes > cd->d.vector_bytes) {
        tci_c_dialect_define_parts(e, p, cd->d.vector_bytes / tci_dtype_get(e->t)->bytes);
        return true;
    }
    bool small = bytes < 64;
    const char *soft = p == TCI_P_FMA && cd->d.vector_bytes == 16 ? tci_c_dialect_soft_fma(cd, e->t)
                                                                  : NULL;
    tci_str text = {0};
    text.s = s;
    tci_str_printf(&text, "TC_I $T $n(%s) {\n#if ", tci_c_dialect_params[n_args]);
    if (soft) {
        tci_str_printf(&text,
                       "defined(__SSE4_1__) && !defined(__FMA__)\n    return %s(a, b, c);\n#elif ",
                       soft);
    }
    tci_str_printf(&text, "TC_GCC\n    return __builtin_ia32_%s(%s);\n",
                   small ? b->small_name : b->gcc_name, small ? b->small_args : b->gcc_args);
    const char *clang_name = small ? b->small_name : b->clang_name;
    tci_str_printf(&text, "#elif TC_HAS(__builtin_ia32_%s)\n    return __builtin_ia32_%s(%s);\n",
                   clang_name, clang_name, small ? b->small_args : b->clang_args);
    if (b->elementwise) {
        tci_str_printf(
            &text,
            "#elif TC_HAS(__builtin_elementwise_%s)\n    return __builtin_elementwise_%s(%s);\n",
            b->elementwise, b->elementwise, tci_c_dialect_args[n_args]);
    }
    const char *scalar = cd->d.prim(&cd->d, p, e->t, e->t, 1, 0);
    const char *rest = tci_c_dialect_lane_body(e, scalar, n_args);
    if (p == TCI_P_PMIN || p == TCI_P_PMAX) {
        rest = p == TCI_P_PMIN ? "    $I m = ($I)(a < b);\n" : "    $I m = ($I)(a > b);\n";
        rest = tci_scratch_printf(s, "%s    return ($T)((m & ($I)a) | (~m & ($I)b));\n", rest);
    }
    tci_str_printf(&text, "#else\n%s#endif\n}", rest);
    e->piece[0] = e->t == TC_F32 ? "ps" : "pd";
    e->piece[1] = bytes == 32 ? "256" : "";
    tci_c_dialect_define(e, tci_str_text(&text));
    return true;
}

/* Correction of the high half of a product where operands are negative: the other operand. */
#define TCI_C_DIALECT_MULHI_SIGNS "(($U)(a >> ($W - 1)) & ($U)b) - (($U)(b >> ($W - 1)) & ($U)a)"

/* Of 64 bits a sum of four products of halves, by operators; of 32 a product twice as wide, in
 * vectors of the even lanes and of the odd ones, which is where gcc needs the builtin. */
static void tci_c_dialect_define_mulhi(tci_c_dialect_env *e)
{
    tci_c_dialect *cd = e->cd;
    int bytes = tci_dtype_get(e->t)->bytes, all = bytes * e->lanes;
    bool is_signed = tci_dtype_is_signed(e->t);
    e->piece[2] = is_signed ? " - " TCI_C_DIALECT_MULHI_SIGNS : "";
    if (bytes == 8) {
        tci_c_dialect_define(
            e, "TC_I $T $n($T a, $T b) {\n    $U x = ($U)a, y = ($U)b;\n"
               "    $U low = (x & 0xffffffffu) * (y & 0xffffffffu);\n"
               "    $U cross = (x >> 32) * (y & 0xffffffffu) + (low >> 32);\n"
               "    $U other = (x & 0xffffffffu) * (y >> 32) + (cross & 0xffffffffu);\n"
               "    return ($T)((x >> 32) * (y >> 32) + (cross >> 32) + (other >> 32)"
               "$3);\n}");
    } else if (e->lanes == 1) {
        e->piece[0] = cd->d.type(&cd->d, is_signed ? TC_I64 : TC_U64, 1);
        tci_c_dialect_define(e, "#define $n(a, b) (($T)(($1)(a) * ($1)(b) >> $W))");
    } else if (bytes == 4 && all >= 16 && all <= cd->d.vector_bytes) {
        e->piece[0] = cd->d.type(&cd->d, TC_U64, e->lanes / 2);
        e->piece[1] = tci_scratch_printf(cd->d.s, "__builtin_ia32_pmuludq%d%s(({v%dsi})", all * 8,
                                         all == 64 ? "_mask" : "", e->lanes);
        e->piece[3] = all == 64 ? ", ({v8di}){0}, -1)" : ")";
        tci_c_dialect_define(
            e,
            tci_scratch_printf(cd->d.s,
                               "TC_I $T $n($T a, $T b) {\n    $1 x = ($1)a, y = ($1)b, even, odd;\n"
                               "#if TC_GCC\n    even = ($1)$2x, ({v%dsi})y$4;\n"
                               "    odd = ($1)$2(x >> 32), ({v%dsi})(y >> 32)$4;\n#else\n"
                               "    even = (x & 0xffffffffu) * (y & 0xffffffffu);\n"
                               "    odd = (x >> 32) * (y >> 32);\n#endif\n"
                               "    return ($T)(($U)((even >> 32) | (odd & 0xffffffff00000000u))"
                               "$3);\n}",
                               e->lanes, e->lanes));
    } else if (bytes == 4 && all > cd->d.vector_bytes) {
        tci_c_dialect_define_parts(e, TCI_P_MULHI, cd->d.vector_bytes / bytes);
    } else {
        tci_c_dialect_define_lanes(e, cd->d.prim(&cd->d, TCI_P_MULHI, e->t, e->t, 1, 0), 2);
    }
}

/* Quotients of words by way of f64, which a machine divides and converts in vectors. Of 32 bits one
 * is exact when cut. Of 64 one that is a little too small leaves a remainder; a quotient of that
 * one leaves less than two divisors. */
static void tci_c_dialect_define_quotient(tci_c_dialect_env *e)
{
    tci_c_dialect *cd = e->cd;
    bool is_signed = tci_dtype_is_signed(e->t);
    if (tci_dtype_get(e->t)->bytes == 4) {
        e->piece[0] = cd->d.type(&cd->d, TC_F64, e->lanes);
        e->piece[1] = tci_c_dialect_convert(cd, e->t, TC_F64, e->lanes);
        e->piece[2] = tci_c_dialect_convert(cd, TC_F64, TC_I64, e->lanes);
        e->piece[3] = tci_c_dialect_convert(cd, TC_I64, e->t, e->lanes);
        tci_c_dialect_define(e, "TC_I $T $n($T a, $T b) {\n    $I none = ($I)(b == 0);\n"
                                "    $1 x = $2(a), y = $2(($T)(b - ($T)none));\n"
                                "    return ($T)(($I)$4($3(x / y)) & ~none);\n}");
    } else if (is_signed) {
        e->piece[0] = cd->d.prim(&cd->d, TCI_P_DIV, TC_U64, TC_U64, e->lanes, 0);
        tci_c_dialect_define(e, "TC_I $T $n($T a, $T b) {\n    $T sign = (a ^ b) >> ($W - 1);\n"
                                "    return (($T)$1(($U)@abs(a), ($U)@abs(b)) ^ sign) - sign;\n}");
    } else {
        e->piece[0] = cd->d.type(&cd->d, TC_F64, e->lanes);
        e->piece[1] = tci_c_dialect_convert(cd, e->t, TC_F64, e->lanes);
        e->piece[2] = tci_c_dialect_convert(cd, TC_F64, e->t, e->lanes);
        tci_c_dialect_define(e,
                             "TC_I $T $n($T a, $T b) {\n    $T none = ($T)(b == 0), y = b - none;\n"
                             "    $1 back = 0x1.ffffffffffff8p-1 / $2(y);\n"
                             "    $T q = $3($2(a) * back), left = a - q * y;\n"
                             "    $T more = $3($2(left) * back);\n"
                             "    $T past = ($T)(left - more * y >= y);\n"
                             "    return (q + more - past) & ~none;\n}");
    }
}

/* Integer quotients and remainders; false: these go by lanes, as a machine without conversions of
 * 64 bits has nothing better. */
static bool tci_c_dialect_define_division(tci_c_dialect_env *e, tci_prim p)
{
    const int native = e->cd->d.vector_bytes / 8;
    if (!tci_dtype_is_int(e->t) || tci_dtype_get(e->t)->bytes < 4 || native < 8 || e->lanes < 4) {
        return false;
    }
    if (e->lanes > native) {
        tci_c_dialect_define_parts(e, p, native);
    } else if (p == TCI_P_REM) {
        tci_c_dialect_define(e, "TC_I $T $n($T a, $T b) {\n"
                                "    return (a - @div(a, b) * b) & ($T)(b != 0);\n}");
    } else {
        tci_c_dialect_define_quotient(e);
    }
    return true;
}

/* The exact remainder of floats. A quotient that is not far is off by at most one when cut, and
 * both remainders are exact; a vector with a lane that is far, or that has no number to divide by,
 * goes by lanes. */
static void tci_c_dialect_define_rem(tci_c_dialect_env *e)
{
    tci_c_dialect *cd = e->cd;
    int bytes = tci_dtype_get(e->t)->bytes;
    if (bytes * e->lanes > cd->d.vector_bytes) {
        tci_c_dialect_define_parts(e, TCI_P_REM, cd->d.vector_bytes / bytes);
        return;
    }
    e->piece[0] = tci_c_dialect_lane_body(e, cd->d.prim(&cd->d, TCI_P_REM, e->t, e->t, 1, 0), 2);
    e->piece[1] = cd->any(cd, e->lanes);
    e->piece[2] = tci_c_dialect_to_mask(cd, e->t, e->lanes);
    e->piece[3] = bytes == 4 ? "0x1p23f" : "0x1p52";
    tci_c_dialect_soft(cd, "TC_INF");
    tci_c_dialect_define(e,
                         "static __attribute__((noinline)) $T $n_far($T a, $T b) {\n$1}\n"
                         "TC_I $T $n($T a, $T b) {\n"
                         "    $T x = @abs(a), y = @abs(b), q = @trunc(x / y);\n"
                         "    $T r = @fma(-q, y, x);\n"
                         "    $I near = ($I)(q < $4) & ($I)(y < TC_INF$f(+)), past = ($I)(r < 0);\n"
                         "    $I sign = ($I)a ^ ($I)x;\n"
                         "    if ($2($3(~near))) {\n        return $n_far(a, b);\n    }\n"
                         "    return ($T)((past & ($I)(r + y)) | (~past & ($I)r) | sign);\n}");
}

static void tci_c_dialect_define_select(tci_c_dialect_env *e)
{
    int size = tci_dtype_get(e->t)->bytes;
    int bytes = size * e->lanes;
    e->piece[0] = tci_c_dialect_of_mask(e->cd, e->t, e->lanes);
    tci_str text = {0};
    text.s = e->cd->d.s;
    tci_str_add(&text, "TC_I $T $n($B k, $T a, $T b) {\n    $I m = $1(k);\n");
    /* With AVX-512 compilers make one vpternlog of the operators; and gcc 12 turns a byte blend
     * round whose mask was widened and narrowed again after a != (from -O1 on). */
    bool blends = (bytes == 16 || bytes == 32) && bytes <= e->cd->d.vector_bytes &&
                  e->cd->d.vector_bytes < 64;
    if (blends) {
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
    tci_str_add(&text, blends ? "#endif\n}" : "}");
    tci_c_dialect_define(e, tci_str_text(&text));
}

/* gcc makes a vector of a comparison before a SELECT takes it, and the operators of the SELECT two
 * instructions: on AVX-512 the mask can stay in its register. */
TCI_FN const char *tci_c_dialect_pick(tci_c_dialect *cd, tci_prim compare, tc_dtype t, tc_dtype to,
                                      int lanes)
{
    int size = tci_dtype_get(t)->bytes;
    bool compares = compare == TCI_P_EQ || compare == TCI_P_LT || compare == TCI_P_LE;
    if (!compares || size < 4 || size * lanes != 64 || cd->d.vector_bytes != 64 || t == TC_BOOL ||
        to == TC_BOOL || tci_dtype_get(to)->bytes != size) {
        return NULL;
    }
    bool is_new, is_float = tci_dtype_is_float(t);
    tci_c_dialect_env e = {cd, t, to, lanes, NULL, {NULL}};
    e.name = tci_scratch_printf(cd->d.s, "tc_pick_%s_%s_%s", tci_prim_get(compare)->name,
                                tci_c_dialect_suffix(cd, t, lanes), tci_dtype_get(to)->name);
    e.name = tci_c_dialect_intern(cd, e.name, &is_new);
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
    tci_c_dialect_define(
        &e,
        tci_scratch_printf(cd->d.s,
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
static void tci_c_dialect_bounds(tci_c_dialect_env *e, tc_dtype to, bool as_bits)
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

static void tci_c_dialect_define_cast_scalar(tci_c_dialect_env *e)
{
    bool float_in = tci_dtype_is_float(e->t);
    bool float_out = tci_dtype_is_float(e->to);
    if (e->to == TC_BOOL) {
        tci_c_dialect_define(e, "#define $n(a) ((a) != 0)");
    } else if (float_in && !float_out) {
        tci_c_dialect_bounds(e, e->to, false);
        tci_c_dialect_define(
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
        tci_c_dialect_define(
            e,
            "TC_I $R $n($T a) {\n    if (!(a >> 63)) {\n        return ($R)(long long)a;\n    }\n"
            "    return ($R)(long long)((a >> 1) | (a & 1)) * 2;\n}");
    } else {
        tci_c_dialect_define(e, "#define $n(a) (($R)(a))");
    }
}

/* float -> int: lanes out of range are zeroed before the conversion and or-ed afterwards. */
static void tci_c_dialect_define_cast_float_int(tci_c_dialect_env *e)
{
    tci_c_dialect *cd = e->cd;
    tci_scratch *s = cd->d.s;
    tc_dtype wide = tci_dtype_get(e->to)->bytes < 4 ? TC_I32 : e->to;
    tc_dtype wide_signed = tci_c_dialect_sint(tci_dtype_get(wide)->bytes);
    const char *wide_type = cd->d.type(&cd->d, wide_signed, e->lanes);
    const char *mask = tci_c_dialect_convert(cd, tci_c_dialect_sint(tci_dtype_get(e->t)->bytes),
                                             wide_signed, e->lanes);
    const char *convert = tci_c_dialect_convert(cd, e->t, wide, e->lanes);
    const char *last = tci_c_dialect_convert(cd, wide_signed, e->to, e->lanes);
    tci_c_dialect_bounds(e, e->to, true);
    const char *low = tci_dtype_is_signed(e->to)
                          ? tci_scratch_printf(s, "    r |= %s(($I)(a < $3)) & $1;\n", mask)
                          : "";
    tci_c_dialect_define(
        e, tci_scratch_printf(s,
                              "TC_I $R $n($T a) {\n    $I ok = ($I)(a >= $3) & ($I)(a < $4);\n"
                              "    %s r = (%s)%s(($T)(($I)a & ok));\n"
                              "    r |= %s(($I)(a >= $4)) & $2;\n%s    return %s(r);\n}",
                              wide_type, wide_type, convert, mask, low, last));
}

static void tci_c_dialect_define_cast_vector(tci_c_dialect_env *e)
{
    tci_c_dialect *cd = e->cd;
    if (e->t == e->to) {
        tci_c_dialect_define(e, "#define $n(a) (a)");
    } else if (e->to == TC_BOOL) {
        e->piece[0] = tci_c_dialect_to_mask(cd, e->t, e->lanes);
        tci_c_dialect_define(e, "#define $n(a) $1(($I)((a) != 0))");
    } else if (e->t == TC_BOOL) {
        tc_dtype same = tci_c_dialect_sint(tci_dtype_get(e->to)->bytes);
        e->piece[0] = tci_c_dialect_of_mask(cd, e->to, e->lanes);
        e->piece[1] = e->to == TC_F32   ? "0x3f800000"
                      : e->to == TC_F64 ? "0x3ff0000000000000LL"
                                        : "1";
        e->piece[2] = cd->d.type(&cd->d, same, e->lanes);
        tci_c_dialect_define(e, "TC_I $R $n($T a) { $3 m = $1(a); return ($R)(m & $2); }");
    } else if (tci_dtype_is_float(e->t) && tci_dtype_is_int(e->to)) {
        tci_c_dialect_define_cast_float_int(e);
    } else {
        e->piece[0] = tci_c_dialect_convert(cd, e->t, e->to, e->lanes);
        tci_c_dialect_define(e, "#define $n(a) $1(a)");
    }
}

/* ---- one prim ---- */

TCI_FN void tci_c_dialect_define_base(const tci_c_dialect_env *outer, tci_prim p)
{
    tci_c_dialect_env env = *outer;
    tci_c_dialect_env *e = &env;
    tci_c_dialect *cd = e->cd;
    int n_args = tci_prim_get(p)->arity;
    const char *text = tci_c_dialect_find_row(p, e->t, e->lanes);
    bool is_vector = e->lanes > 1;
    bool loops = (p == TCI_P_POWI || p == TCI_P_GCD) && e->t != TC_BOOL;
    if (loops && is_vector && tci_dtype_get(e->t)->bytes * e->lanes > cd->d.vector_bytes) {
        tci_c_dialect_define_parts(e, p, cd->d.vector_bytes / tci_dtype_get(e->t)->bytes);
    } else if (loops) {
        if (tci_dtype_is_signed(e->t)) {
            tc_dtype plain = tci_c_dialect_uint(tci_dtype_get(e->t)->bytes);
            e->piece[0] = cd->d.prim(&cd->d, p, plain, plain, e->lanes, 0);
        }
        e->piece[1] = is_vector ? cd->any(cd, e->lanes) : "";
        tci_c_dialect_define(e, text);
    } else if (p == TCI_P_CAST) {
        if (is_vector) {
            tci_c_dialect_define_cast_vector(e);
        } else {
            tci_c_dialect_define_cast_scalar(e);
        }
    } else if (text) {
        if (p == TCI_P_EQ || p == TCI_P_LT || p == TCI_P_LE) {
            e->piece[0] = is_vector && e->t != TC_BOOL ? tci_c_dialect_to_mask(cd, e->t, e->lanes)
                                                       : "";
        } else if (p == TCI_P_TOINT) {
            e->piece[0] = is_vector ? tci_c_dialect_convert(cd, e->t, e->to, e->lanes) : "";
        } else if (p == TCI_P_ROUND16) {
            e->piece[0] = tci_c_dialect_widen(cd, TC_F32, TC_F16, e->lanes);
            e->piece[1] = tci_c_dialect_narrow(cd, TC_F32, TC_F16, e->lanes);
        }
        tci_c_dialect_define(e, text);
    } else if (p == TCI_P_MULHI) {
        tci_c_dialect_define_mulhi(e);
    } else if (is_vector && p == TCI_P_REM && tci_dtype_is_float(e->t)) {
        tci_c_dialect_define_rem(e);
    } else if (is_vector && (p == TCI_P_DIV || p == TCI_P_REM) &&
               tci_c_dialect_define_division(e, p)) {
        return;
    } else if (is_vector && p == TCI_P_SELECT) {
        tci_c_dialect_define_select(e);
    } else if (is_vector && p == TCI_P_ROUNDB16) {
        tci_c_dialect_define(e,
                             "TC_I $T $n($T a) {\n    $U u = ($U)a;\n    $U nan = ($U)(a != a);\n"
                             "    $U r = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;\n"
                             "    return ($T)((r & ~nan) | (nan & 0x7fc00000));\n}");
    } else if (!is_vector) {
        tci_c_dialect_define_soft(e, p);
    } else if (!tci_c_dialect_define_builtin(e, p, n_args)) {
        tci_c_dialect_define_lanes(e, cd->d.prim(&cd->d, p, e->t, e->to, 1, 0), n_args);
    }
}
