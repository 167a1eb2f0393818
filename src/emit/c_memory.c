/* emit/c_memory.c - defines the memory accesses and lane shuffles of the C dialect (the intrinsics
 * of loop/intrinsics.h) as C functions.
 *
 * In: a row, the compute dtype, the storage dtype, lanes. Out: the name of its definition. Design:
 * an access has the type of the bits in memory (u16 for f16 and bf16, u8 for bool, else the dtype
 * itself), and `widen` and `narrow` convert those bits to compute values and back. Partial
 * accesses stay within n: masked instructions on AVX-512 and, for 4- and 8-byte elements, on AVX2;
 * elsewhere n is split into powers of two (a loop would become memcpy), or lanes are separate. */
#include <string.h>

#include "../loop/ir.h"
#include "c_templates.h"

/* ---- storage bits <-> compute values ---- */

static tc_dtype tci_c_dialect_storage_bits(tc_dtype storage)
{
    return storage == TC_BOOL ? TC_U8 : tci_dtype_is_half(storage) ? TC_U16 : storage;
}

/* On aarch64 compilers make one instruction of these, also on vectors. */
static const char tci_c_dialect_f16_widen[] =
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
static const char tci_c_dialect_f16_narrow[] =
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

static void tci_c_dialect_define_widen_f16(tci_c_dialect_env *e)
{
    if (e->lanes == 1) {
        tci_c_dialect_define(e, tci_c_dialect_f16_widen);
        return;
    }
    int bytes = 4 * e->lanes;
    e->piece[0] = tci_c_dialect_widen(e->cd, TC_F32, TC_F16, 1);
    e->piece[1] = tci_c_dialect_list(e->cd, e->lanes, "$1(a[#])", 1, e->lanes);
    e->piece[2] = bytes == 16 ? "" : bytes == 32 ? "256" : "512_mask";
    e->piece[3] = bytes == 64 ? "({v16hi})a, ($R){0}, -1, 4"
                              : tci_scratch_printf(e->cd->d.s, "({v8hi})%s",
                                                   tci_c_dialect_to_register(bytes / 2));
    if (bytes < 16 || bytes > e->cd->d.vector_bytes) {
        tci_c_dialect_define(e, "TC_I $R $n($T a) {\n    return ($R){$2};\n}");
        return;
    }
    tci_c_dialect_define(e,
                         "TC_I $R $n($T a) {\n"
                         "#if defined(__F16C__) && (TC_GCC || TC_HAS(__builtin_ia32_vcvtph2ps$3))\n"
                         "    return __builtin_ia32_vcvtph2ps$3($4);\n"
                         "#else\n    return ($R){$2};\n#endif\n}");
}

static void tci_c_dialect_define_narrow_f16(tci_c_dialect_env *e)
{
    if (e->lanes == 1) {
        tci_c_dialect_define(e, tci_c_dialect_f16_narrow);
        return;
    }
    int bytes = 4 * e->lanes;
    const char *width = bytes == 16 ? "" : bytes == 32 ? "256" : "512_mask";
    const char *call = tci_scratch_printf(e->cd->d.s, "__builtin_ia32_vcvtps2ph%s(a, %s)", width,
                                          bytes == 64 ? "0, ({v16hi}){0}, -1" : "0");
    e->piece[0] = tci_c_dialect_narrow(e->cd, TC_F32, TC_F16, 1);
    e->piece[1] = tci_c_dialect_list(e->cd, e->lanes, "$1(a[#])", 1, e->lanes);
    e->piece[2] = width;
    e->piece[3] = tci_c_dialect_from_register(e->cd, bytes / 2, call);
    if (bytes < 16 || bytes > e->cd->d.vector_bytes) {
        tci_c_dialect_define(e, "TC_I $R $n($T a) {\n    return ($R){$2};\n}");
        return;
    }
    tci_c_dialect_define(e,
                         "TC_I $R $n($T a) {\n"
                         "#if defined(__F16C__) && (TC_GCC || TC_HAS(__builtin_ia32_vcvtps2ph$3))\n"
                         "    return $4;\n"
                         "#else\n    return ($R){$2};\n#endif\n}");
}

TCI_FN const char *tci_c_dialect_widen(tci_c_dialect *cd, tc_dtype compute, tc_dtype storage,
                                       int lanes)
{
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_widen_%s_%s",
                                          tci_c_dialect_suffix(cd, compute, lanes),
                                          tci_dtype_get(storage)->name);
    name = tci_c_dialect_intern(cd, name, &is_new);
    tc_dtype bits = tci_c_dialect_storage_bits(storage);
    tci_c_dialect_env e = {cd, bits, compute, lanes, name, {NULL}};
    if (!is_new) {
        return name;
    }
    if (storage == TC_F16) {
        tci_c_dialect_define_widen_f16(&e);
    } else if (storage == TC_BOOL) {
        e.piece[0] = lanes > 1 ? tci_c_dialect_convert(cd, bits,
                                                       tci_c_dialect_mask_dtype(cd, lanes), lanes)
                               : "";
        tci_c_dialect_define(&e, lanes > 1 ? "#define $n(a) (($R)($1(a) != 0))"
                                           : "#define $n(a) ((a) != 0)");
    } else if (lanes > 1) {
        e.piece[0] = tci_c_dialect_convert(cd, TC_U16, TC_U32, lanes);
        tci_c_dialect_define(&e, "#define $n(a) (($R)($1(a) << 16))");
    } else {
        tci_c_dialect_define(&e, "TC_I $R $n($T a) {\n    union { $R f; unsigned u; } v;\n"
                                 "    v.u = (unsigned)a << 16;\n    return v.f;\n}");
    }
    return name;
}

static void tci_c_dialect_define_narrow_bf16(tci_c_dialect_env *e)
{
    if (e->lanes == 1) {
        tci_c_dialect_define(
            e, "TC_I $R $n($T a) {\n    union { $T f; unsigned u; } v;\n    v.f = a;\n"
               "    if (a != a) {\n        return 0x7fc0;\n    }\n"
               "    return ($R)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);\n}");
        return;
    }
    e->piece[0] = tci_c_dialect_convert(e->cd, TC_U32, TC_U16, e->lanes);
    tci_c_dialect_define(e, "TC_I $R $n($T a) {\n    $U u = ($U)a;\n    $U nan = ($U)(a != a);\n"
                            "    u = (u + 0x7fff + ((u >> 16) & 1)) >> 16;\n"
                            "    return $1((u & ~nan) | (nan & 0x7fc0));\n}");
}

TCI_FN const char *tci_c_dialect_narrow(tci_c_dialect *cd, tc_dtype compute, tc_dtype storage,
                                        int lanes)
{
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_narrow_%s_%s",
                                          tci_c_dialect_suffix(cd, compute, lanes),
                                          tci_dtype_get(storage)->name);
    name = tci_c_dialect_intern(cd, name, &is_new);
    tci_c_dialect_env e = {cd, compute, tci_c_dialect_storage_bits(storage), lanes, name, {NULL}};
    if (!is_new) {
        return name;
    }
    if (storage == TC_F16) {
        tci_c_dialect_define_narrow_f16(&e);
    } else if (storage == TC_BF16) {
        tci_c_dialect_define_narrow_bf16(&e);
    } else if (lanes > 1) {
        e.piece[0] = tci_c_dialect_convert(cd, tci_c_dialect_mask_dtype(cd, lanes), TC_U8, lanes);
        tci_c_dialect_define(&e, "#define $n(a) ($1(a) & 1)");
    } else {
        tci_c_dialect_define(&e, "#define $n(a) (($R)(a))");
    }
    return name;
}

/* ---- masks ---- */

/* Name of: mask vector -> the AVX-512 mask register as an integer. 64-byte targets only. */
static const char *tci_c_dialect_mask_bits(tci_c_dialect *cd, int lanes)
{
    bool is_new;
    tci_c_dialect_env e = {cd, TC_BOOL, TC_BOOL, lanes, NULL, {NULL}};
    e.name = tci_c_dialect_intern(cd, tci_scratch_printf(cd->d.s, "tc_mask_bits_x%d", lanes),
                                  &is_new);
    if (is_new) {
        int size = tci_dtype_get(tci_c_dialect_mask_dtype(cd, lanes))->bytes;
        const char *letter = size == 1 ? "b" : size == 2 ? "w" : size == 4 ? "d" : "q";
        const char *mode = size == 1 ? "qi" : size == 2 ? "hi" : size == 4 ? "si" : "di";
        e.piece[0] = tci_scratch_printf(cd->d.s, "%s2mask%d", letter, size * lanes * 8);
        e.piece[1] = tci_scratch_printf(cd->d.s, "{v%d%s}", lanes, mode);
        tci_c_dialect_define(&e, "#define $n(m) __builtin_ia32_cvt$1(($2)(m))");
    }
    return e.name;
}

TCI_FN const char *tci_c_dialect_any(tci_c_dialect *cd, int lanes)
{
    bool is_new;
    tci_c_dialect_env e = {cd, TC_BOOL, TC_BOOL, lanes, NULL, {NULL}};
    e.name = tci_c_dialect_intern(cd, tci_scratch_printf(cd->d.s, "tc_any_x%d", lanes), &is_new);
    if (!is_new) {
        return e.name;
    }
    int bytes = tci_dtype_get(tci_c_dialect_mask_dtype(cd, lanes))->bytes * lanes;
    const char *fast = NULL;
    if (cd->d.vector_bytes == 64 && bytes >= 16) {
        e.piece[0] = tci_c_dialect_mask_bits(cd, lanes);
        fast = "#if TC_GCC || TC_HAS(__builtin_ia32_cvtd2mask512)\n    return $1(m) != 0;\n#else\n";
    } else if (bytes == 16 || bytes == 32) {
        e.piece[0] = bytes == 32 ? "256" : "128";
        e.piece[1] = bytes == 32 ? "{v4di}" : "{v2di}";
        fast = "#if TC_GCC || TC_HAS(__builtin_ia32_ptestz$1)\n"
               "    return !__builtin_ia32_ptestz$1(($2)m, ($2)m);\n#else\n";
    }
    e.piece[2] = fast ? fast : "";
    e.piece[3] = fast ? "#endif\n" : "";
    tci_c_dialect_define(
        &e, "TC_I int $n($B m) {\n$3    int r = 0;\n    for (int i = 0; i < $L; i++) {\n"
            "        r |= m[i] != 0;\n    }\n    return r;\n$4}");
    return e.name;
}

TCI_FN const char *tci_c_dialect_any_less(tci_c_dialect *cd, tc_dtype t, int lanes)
{
    bool is_new;
    tci_c_dialect_env e = {cd, t, t, lanes, NULL, {NULL}};
    e.name = tci_scratch_printf(cd->d.s, "tc_any_lt_%s", tci_c_dialect_suffix(cd, t, lanes));
    e.name = tci_c_dialect_intern(cd, e.name, &is_new);
    if (!is_new) {
        return e.name;
    }
    bool wide = tci_dtype_get(t)->bytes * lanes == 64 && cd->d.vector_bytes == 64;
    e.piece[0] = t == TC_F32 ? "ps" : "pd";
    e.piece[1] = cd->any(cd, lanes);
    if (wide && tci_dtype_is_float(t)) {
        tci_c_dialect_define(
            &e, "#if TC_GCC || TC_HAS(__builtin_ia32_cmp$1512_mask)\n"
                "#define $n(a, b) (__builtin_ia32_cmp$1512_mask(a, b, 17, -1, 4) != 0)\n"
                "#else\n#define $n(a, b) $2(@lt(a, b))\n#endif");
    } else if (wide && t == TC_U32) {
        tci_c_dialect_define(
            &e, "#if TC_GCC || TC_HAS(__builtin_ia32_ucmpd512_mask)\n"
                "#define $n(a, b) \\\n"
                "    (__builtin_ia32_ucmpd512_mask(({v16si})a, ({v16si})b, 1, -1) != 0)\n"
                "#else\n#define $n(a, b) $2(@lt(a, b))\n#endif");
    } else {
        tci_c_dialect_define(&e, "#define $n(a, b) $2(@lt(a, b))");
    }
    return e.name;
}

/* ---- partial accesses ---- */

/* Template of the body through the machine's masked instruction, or NULL where there is none. A
 * store of some lanes by AVX2's takes a Zen 3 17 cycles, in halves 2 to 5, so where their number is
 * a constant it is left to what follows. */
static const char *tci_c_dialect_partial_fast(tci_c_dialect_env *e, tci_mem m)
{
    tci_c_dialect *cd = e->cd;
    tci_scratch *s = cd->d.s;
    int size = tci_dtype_get(e->t)->bytes;
    int bytes = size * e->lanes;
    int machine_bytes = TCI_MAX(bytes, 16);
    bool is_store = m == TCI_MEM_STORE_N;
    if (bytes > cd->d.vector_bytes || bytes < 2) {
        return NULL;
    }
    tci_c_dialect_soft(cd, "TC_ANY");
    if (cd->d.vector_bytes == 64) {
        static const char *const names[9] =
            {[1] = "dquqi", [2] = "dquhi", [4] = "ups", [8] = "upd"};
        const char *mode = size == 1 ? "qi" : size == 2 ? "hi" : size == 4 ? "sf" : "df";
        const char *type = tci_scratch_printf(s, "{v%d%s}", machine_bytes / size, mode);
        const char *bits = m == TCI_MEM_LOAD_MASK
                               ? tci_scratch_printf(s, "%s(m)",
                                                    tci_c_dialect_mask_bits(cd, e->lanes))
                               : "(1ULL << n) - 1";
        const char *builtin = tci_scratch_printf(s, "__builtin_ia32_%s%s%d_mask",
                                                 is_store ? "store" : "load", names[size],
                                                 machine_bytes * 8);
        const char *call = is_store
                               ? tci_scratch_printf(s, "%s(TC_ANY(p), (%s)%s, %s)", builtin, type,
                                                    tci_c_dialect_to_register(bytes), bits)
                               : tci_c_dialect_from_register(
                                     cd, bytes,
                                     tci_scratch_printf(s, "%s(TC_ANY(p), (%s){0}, %s)", builtin,
                                                        type, bits));
        return tci_scratch_printf(s, "#if TC_GCC || TC_HAS(%s)\n    %s%s;\n", builtin,
                                  is_store ? "" : "return ", call);
    }
    if (cd->d.vector_bytes == 32 && size >= 4 && bytes >= 16) {
        const char *name = size == 4 ? "ps" : "pd";
        const char *width = bytes == 32 ? "256" : "";
        const char *ints = tci_scratch_printf(s, "{v%d%s}", e->lanes, size == 4 ? "si" : "di");
        const char *floats = tci_scratch_printf(s, "{v%d%s}", e->lanes, size == 4 ? "sf" : "df");
        const char *test = m == TCI_MEM_LOAD_MASK
                               ? tci_scratch_printf(s, "%s(m)",
                                                    tci_c_dialect_of_mask(cd, e->t, e->lanes))
                               : tci_scratch_printf(s, "(%s){%s} < (%s)n", ints,
                                                    tci_c_dialect_list(cd, e->lanes, "#", 1,
                                                                       e->lanes),
                                                    size == 4 ? "int" : "long long");
        if (is_store) {
            return tci_scratch_printf(
                s,
                "#if TC_GCC || TC_HAS(__builtin_ia32_maskstore%s%s)\n"
                "    if (!__builtin_constant_p(n)) {\n"
                "        __builtin_ia32_maskstore%s%s(TC_ANY(p), (%s)(%s), (%s)a);\n"
                "        return;\n    }\n#endif\n",
                name, width, name, width, ints, test, floats);
        }
        return tci_scratch_printf(
            s,
            "#if TC_GCC || TC_HAS(__builtin_ia32_maskload%s%s)\n"
            "    return ($T)__builtin_ia32_maskload%s%s(TC_ANY(p), (%s)(%s));\n",
            name, width, name, width, ints, test);
    }
    return NULL;
}

/* The first n elements between p and t, by constant sizes that halve. */
static const char *tci_c_dialect_halving(tci_c_dialect *cd, int lanes, bool to_p)
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

static void tci_c_dialect_define_masked_access(tci_c_dialect_env *e, tci_mem m)
{
    tci_c_dialect *cd = e->cd;
    const char *fast = tci_c_dialect_partial_fast(e, m);
    e->piece[0] = fast ? fast : "";
    bool some = m == TCI_MEM_STORE_N && cd->d.vector_bytes == 32; /* not all go there */
    e->piece[1] = fast && !some ? "#else\n" : "";
    e->piece[2] = fast && !some ? "#endif\n" : "";
    if (m == TCI_MEM_LOAD_MASK) {
        tci_c_dialect_define(
            e, "TC_I $T $n(const $E *p, $B m) {\n$1$2    $T r = {0};\n"
               "    for (int i = 0; i < $L; i++) {\n        if (m[i]) {\n            r[i] = p[i];\n"
               "        }\n    }\n    return r;\n$3}");
    } else if (m == TCI_MEM_LOAD_N) {
        e->piece[3] = tci_c_dialect_halving(cd, e->lanes, false);
        tci_c_dialect_define(
            e, "TC_I $T $n(const $E *p, long n) {\n$1$2    $E t[$L] = {0};\n    $T r;\n  "
               "  int i = 0;\n"
               "$4    __builtin_memcpy(&r, t, sizeof r);\n    return r;\n$3}");
    } else if (tci_dtype_get(e->t)->bytes * e->lanes > cd->d.vector_bytes) {
        /* gcc has a note on parameters that are wider than a register. */
        e->piece[3] = tci_c_dialect_halving(cd, e->lanes, true);
        tci_c_dialect_define(
            e, "TC_I void $n_from($E *p, const $T *a, long n) {\n    $E t[$L];\n    int i = 0;\n"
               "    __builtin_memcpy(t, a, sizeof t);\n$4}\n"
               "#define $n(p, v, n) \\\n    do { $T from = (v); $n_from(p, &from, n); } while (0)");
    } else {
        e->piece[3] = tci_c_dialect_halving(cd, e->lanes, true);
        tci_c_dialect_define(
            e, "TC_I void $n($E *p, $T a, long n) {\n$1$2    $E t[$L];\n    int i = 0;\n"
               "    __builtin_memcpy(t, &a, sizeof a);\n$4$3}");
    }
}

/* ---- the rows ---- */

static void tci_c_dialect_define_stream(tci_c_dialect_env *e, tci_mem m)
{
    (void)m;
    int bytes = tci_dtype_get(e->t)->bytes * e->lanes;
    if (bytes < 16 || bytes > e->cd->d.vector_bytes) {
        tci_c_dialect_define(e, "#define $n(p, v) ((void)(*($A *)(p) = (v)))");
        return;
    }
    tci_c_dialect_soft(e->cd, "TC_ANY");
    e->piece[0] = bytes == 16 ? "" : bytes == 32 ? "256" : "512";
    e->piece[1] = bytes == 16 ? "{v4sf}" : bytes == 32 ? "{v8sf}" : "{v16sf}";
    e->piece[2] = tci_scratch_printf(e->cd->d.s, "%d", bytes - 1);
    e->piece[3] = e->cd->d.type(&e->cd->d, TC_I64, 1);
    tci_c_dialect_define(
        e, "TC_I void $n($E *p, $T v) {\n    if (($4)p & $3) {\n        *($A *)p = v;\n"
           "        return;\n    }\n"
           "#if TC_GCC\n    __builtin_ia32_movntps$1(TC_ANY(p), ($2)v);\n"
           "#elif defined(__clang__)\n    __builtin_nontemporal_store(v, ($T *)p);\n"
           "#else\n    *($A *)p = v;\n#endif\n}");
}

static void tci_c_dialect_define_high_half(tci_c_dialect_env *e, tci_mem m)
{
    (void)m;
    tci_c_dialect *cd = e->cd;
    tci_str cases = {0};
    cases.s = cd->d.s;
    for (int h = 1; h < e->lanes; h *= 2) {
        tci_str_printf(&cases, "    case %d:\n        return __builtin_shufflevector(v, v", h);
        for (int i = 0; i < e->lanes; i++) {
            tci_str_printf(&cases, ", %d", (i + h) % e->lanes);
        }
        tci_str_add(&cases, ");\n");
    }
    tc_dtype element = e->t == TC_BOOL ? tci_c_dialect_mask_dtype(cd, e->lanes) : e->t;
    tc_dtype index = tci_c_dialect_sint(tci_dtype_get(element)->bytes);
    e->piece[0] = tci_str_text(&cases);
    e->piece[1] = tci_c_dialect_list(cd, e->lanes, "#", 1, e->lanes);
    e->piece[2] = cd->d.type(&cd->d, index, e->lanes);
    e->piece[3] = cd->d.type(&cd->d, index, 1);
    tci_c_dialect_define(
        e, "TC_I $T $n($T v, int h) {\n#if defined(__clang__)\n    switch (h) {\n$1    default:\n"
           "        return v;\n    }\n#else\n    return __builtin_shuffle(v, ($3){$2} + "
           "($4)h);\n#endif\n}");
}

/* The lanes that are every other element of two vectors, the second of which begins with the last
 * element of the first: so nothing after what is wanted is read. */
static const char *tci_c_dialect_every_other(tci_c_dialect *cd, int lanes)
{
    tci_str text = {0};
    text.s = cd->d.s;
    for (int i = 0; i < lanes; i++) {
        tci_str_printf(&text, ", %d", 2 * i + (2 * i >= lanes));
    }
    return tci_str_text(&text);
}

/* Some of the lanes of the same. */
static void tci_c_dialect_define_load_strided_n(tci_c_dialect_env *e, tci_mem m)
{
    (void)m;
    tci_c_dialect *cd = e->cd;
    tci_c_dialect_soft(cd, "TC_MIX");
    e->piece[0] = tci_c_dialect_mem(&cd->d, TCI_MEM_LOAD_N, e->t, e->t, e->lanes);
    e->piece[1] = tci_c_dialect_every_other(cd, e->lanes);
    e->piece[2] = cd->d.type(&cd->d, tci_c_dialect_sint(tci_dtype_get(e->t)->bytes), e->lanes);
    tci_c_dialect_define(
        e, "TC_I $T $n(const $E *p, long s, long n) {\n    if (s == 2 && 2 * n > $L) {\n"
           "        const $T low = *(const $A *)p;\n"
           "        return TC_MIX($3, low, $1(p + ($L - 1), 2 * n - $L)$2);\n"
           "    }\n    if (s == 2 && n > 0) {\n        const $T none = {0};\n"
           "        return TC_MIX($3, $1(p, 2 * n - 1), none$2);\n    }\n"
           "    $T r = {0};\n    for (long i = 0; i < n; i++) {\n"
           "        r[i] = p[i * s];\n    }\n    return r;\n}");
}

/* Neighbours in the other direction are one vector reversed, every other one is in two. */
static void tci_c_dialect_define_strided(tci_c_dialect_env *e, tci_mem m)
{
    const bool store = m == TCI_MEM_STORE_STRIDED;
    tci_c_dialect *cd = e->cd;
    tci_str turned = {0};
    turned.s = cd->d.s;
    for (int i = e->lanes - 1; i >= 0; i--) {
        tci_str_printf(&turned, ", %d", i);
    }
    tci_c_dialect_soft(cd, "TC_MIX");
    e->piece[3] = tci_c_dialect_every_other(cd, e->lanes);
    e->piece[0] = tci_c_dialect_list(cd, e->lanes, "p[# * s]", 1, e->lanes);
    e->piece[1] = tci_str_text(&turned);
    e->piece[2] = cd->d.type(&cd->d, tci_c_dialect_sint(tci_dtype_get(e->t)->bytes), e->lanes);
    tci_c_dialect_define(e, store ? "TC_I void $n($E *p, long s, $T v) {\n    if (s == -1) {\n"
                                    "        *($A *)(p - ($L - 1)) = TC_MIX($3, v, v$2);\n"
                                    "        return;\n    }\n    for (int i = 0; i < $L; i++) {\n"
                                    "        p[i * s] = v[i];\n    }\n}"
                                  : "TC_I $T $n(const $E *p, long s) {\n    if (s == -1) {\n"
                                    "        const $T v = *(const $A *)(p - ($L - 1));\n"
                                    "        return TC_MIX($3, v, v$2);\n    }\n    if (s == 2) {\n"
                                    "        const $T low = *(const $A *)p, "
                                    "high = *(const $A *)(p + ($L - 1));\n"
                                    "        return TC_MIX($3, low, high$4);\n    }\n"
                                    "    return ($T){$1};\n}");
}

static void tci_c_dialect_define_below(tci_c_dialect_env *e, tci_mem m)
{
    (void)m;
    tci_c_dialect *cd = e->cd;
    tci_str cases = {0};
    cases.s = cd->d.s;
    for (int h = 1; h < e->lanes; h *= 2) {
        tci_str_printf(&cases, "    case %d:\n        return TC_MIX($1, v, none", h);
        for (int i = 0; i < e->lanes; i++) {
            tci_str_printf(&cases, ", %d", i & h ? (i | (h - 1)) ^ h : e->lanes + i);
        }
        tci_str_add(&cases, ");\n");
    }
    tc_dtype element = e->t == TC_BOOL ? tci_c_dialect_mask_dtype(cd, e->lanes) : e->t;
    tci_c_dialect_soft(cd, "TC_MIX");
    e->piece[0] = cd->d.type(&cd->d, tci_c_dialect_sint(tci_dtype_get(element)->bytes), e->lanes);
    e->piece[1] = tci_str_text(&cases);
    tci_c_dialect_define(e, "TC_I $T $n($T v, $T none, int h) {\n    switch (h) {\n$2    default:\n"
                            "        return v;\n    }\n}");
}

static void tci_c_dialect_define_swap(tci_c_dialect_env *e, tci_mem m)
{
    const bool high = m == TCI_MEM_SWAP_HIGH;
    tci_c_dialect *cd = e->cd;
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
    tc_dtype element = e->t == TC_BOOL ? tci_c_dialect_mask_dtype(cd, e->lanes) : e->t;
    tci_c_dialect_soft(cd, "TC_MIX");
    e->piece[0] = cd->d.type(&cd->d, tci_c_dialect_sint(tci_dtype_get(element)->bytes), e->lanes);
    e->piece[1] = tci_str_text(&cases);
    tci_c_dialect_define(e, "TC_I $T $n($T a, $T b, int h) {\n    switch (h) {\n$2    default:\n"
                            "        return a;\n    }\n}");
}

static void tci_c_dialect_define_weave(tci_c_dialect_env *e, tci_mem m)
{
    const bool high = m == TCI_MEM_WEAVE_HIGH;
    tci_c_dialect *cd = e->cd;
    tci_str lanes = {0};
    lanes.s = cd->d.s;
    for (int i = 0; i < e->lanes; i++) {
        int of_half = i / 2 + (high ? e->lanes / 2 : 0);
        tci_str_printf(&lanes, ", %d", i % 2 * e->lanes + of_half);
    }
    tc_dtype element = e->t == TC_BOOL ? tci_c_dialect_mask_dtype(cd, e->lanes) : e->t;
    tci_c_dialect_soft(cd, "TC_MIX");
    e->piece[0] = cd->d.type(&cd->d, tci_c_dialect_sint(tci_dtype_get(element)->bytes), e->lanes);
    e->piece[1] = tci_str_text(&lanes);
    tci_c_dialect_define(e, "TC_I $T $n($T a, $T b) { return TC_MIX($1, a, b$2); }");
}

/* Elements anywhere, one after the other: no slower than the machine's instruction for it (Zen 5:
 * 0.33 ns an element, and 0.42). Offsets are taken out of vectors that the machine has. */
static void tci_c_dialect_define_load_at(tci_c_dialect_env *e, tci_mem m)
{
    (void)m;
    tci_c_dialect *cd = e->cd;
    tci_str list = {0};
    list.s = cd->d.s;
    int native = TCI_MAX(TCI_MIN(cd->d.vector_bytes / 8, e->lanes), 2);
    for (int i = 0; i < e->lanes; i++) {
        tci_str_printf(&list, "%sp[at.h[%d][%d]]", i ? ", " : "", i / native, i % native);
    }
    e->piece[0] = cd->d.type(&cd->d, TC_I64, e->lanes);
    e->piece[1] = cd->d.type(&cd->d, TC_I64, native);
    e->piece[2] = tci_scratch_printf(cd->d.s, "%d", e->lanes / native);
    e->piece[3] = tci_str_text(&list);
    tci_c_dialect_define(
        e, "TC_I $T $n(const $E *p, $1 i) {\n"
           "    union { $1 v; $2 h[$3]; } at;\n    at.v = i;\n    return ($T){$4};\n}");
}

/* Indices: one test of all lanes, of a vector wider than the machine's in parts. */
static void tci_c_dialect_define_index(tci_c_dialect_env *e, tci_mem m)
{
    (void)m;
    tci_c_dialect *cd = e->cd;
    int native = cd->d.vector_bytes / 8;
    if (native > 0 && e->lanes > native) {
        e->piece[0] = cd->d.type(&cd->d, TC_I64, native);
        e->piece[1] = cd->d.mem(&cd->d, TCI_MEM_INDEX, TC_I64, TC_I64, native);
        e->piece[2] = tci_scratch_printf(cd->d.s, "%d", e->lanes / native);
        tci_c_dialect_define(e,
                             "TC_I $T $n($T a, tc_i64 n, tc_i64 *fault) {\n"
                             "    union { $T v; $1 h[$3]; } r;\n    r.v = a;\n"
                             "    for (int k = 0; k < $3; k++) {\n"
                             "        r.h[k] = $2(r.h[k], n, fault);\n    }\n    return r.v;\n}");
        return;
    }
    e->piece[0] = cd->any(cd, e->lanes);
    e->piece[1] = tci_c_dialect_to_mask(cd, e->t, e->lanes);
    tci_c_dialect_define(
        e, "TC_I $T $n($T a, tc_i64 n, tc_i64 *fault) {\n"
           "    $T i = a + ($T)((a < 0) & (($T){0} + n)), wrong = ($T)(($U)i >= ($U){0} + n);\n"
           "    if ($1($2(wrong))) {\n        *fault = n + 1;\n"
           "        i = (~wrong & i) | (wrong & ~($T)(i < 0) & (($T){0} + (n > 0 ? n - 1 : 0)));\n"
           "    }\n    return i;\n}");
}

/* Sums of products of integers. $1 tests if these lanes have the instructions, $4 if there is VNNI,
 * also in a compiler that was only given the flag. For VNNI gcc makes better code from its builtins
 * than from inline assembly, of the features $2, which $3 encodes as. */
static const char tci_c_dialect_int_pairs[] =
    "#if $1 && $4 && TC_GCC && __GNUC__ >= 11\n"
    "#pragma GCC target(\"$2\")\n"
    "#define $n(c, a, b) __builtin_ia32_vpdpwssd_v$Lsi(c, a, b)\n"
    "#elif $1 && $4\n"
    "TC_I $T $n($T c, $T a, $T b) {\n"
    "    __asm__(\"$3vpdpwssd %2, %1, %0\" : \"+v\"(c) : \"v\"(a), \"v\"(b));\n    return c;\n}\n"
    "#elif $1\n"
    "TC_I $T $n($T c, $T a, $T b) {\n    $T sum;\n"
    "    __asm__(\"vpmaddwd %2, %1, %0\" : \"=v\"(sum) : \"v\"(a), \"v\"(b));\n"
    "    return ($T)(($U)c + ($U)sum);\n}\n"
    "#else\n"
    "TC_I $T $n($T c, $T a, $T b) {\n"
    "    $U low = ($U)(($T)(($U)a << 16) >> 16) * ($U)(($T)(($U)b << 16) >> 16);\n"
    "    return ($T)(($U)c + low + ($U)(a >> 16) * ($U)(b >> 16));\n}\n"
    "#endif";
static const char tci_c_dialect_int_fours[] =
    "#if $1 && $4 && TC_GCC && __GNUC__ >= 11\n"
    "#pragma GCC target(\"$2\")\n"
    "#define $n(c, a, b) __builtin_ia32_vpdpbusd_v$Lsi(c, a, b)\n"
    "#elif $1 && $4\n"
    "TC_I $T $n($T c, $T a, $T b) {\n"
    "    __asm__(\"$3vpdpbusd %2, %1, %0\" : \"+v\"(c) : \"v\"(a), \"v\"(b));\n    return c;\n}\n"
    "#else\n"
    "TC_I $T $n($T c, $T a, $T b) {\n    $U x = ($U)a, y = ($U)b, sum = ($U)c;\n"
    "    for (int i = 0; i < 4; i++, x >>= 8, y >>= 8) {\n"
    "        sum += (x & 255) * ($U)(($T)(y << 24) >> 24);\n    }\n    return ($T)sum;\n}\n"
    "#endif";

static void tci_c_dialect_define_int_dot(tci_c_dialect_env *e, bool fours)
{
    int bytes = tci_dtype_get(e->t)->bytes * e->lanes;
    bool wide = e->cd->d.vector_bytes == 64;
    e->piece[0] = bytes == 64   ? "defined(__AVX512BW__)"
                  : bytes == 32 ? "defined(__AVX2__)"
                  : bytes == 16 ? "defined(__AVX__)"
                                : "0";
    e->piece[1] = wide ? "avx512vnni,avx512vl" : "avxvnni";
    e->piece[2] = wide ? "" : "%{vex%} ";
    e->piece[3] = wide ? "(defined(TC_FOURS) || defined(__AVX512VNNI__))"
                       : "(defined(TC_FOURS) || defined(__AVXVNNI__)) && "
                         "(__GNUC__ >= 11 || __clang_major__ >= 12)"; /* whose assemblers know it */
    tci_c_dialect_define(e, fours ? tci_c_dialect_int_fours : tci_c_dialect_int_pairs);
}

/* Rows on whole vectors that need no more than a template; b: for masks where that differs. */
typedef struct tci_c_dialect_mem_row {
    uint8_t mem;
    const char *name, *text, *b;
} tci_c_dialect_mem_row;

static const tci_c_dialect_mem_row tci_c_dialect_mem_rows[] = {
    {TCI_MEM_LOAD, "load", "#define $n(p) (*(const $A *)(p))", NULL},
    {TCI_MEM_LOAD_MASK, "load_mask", NULL, NULL},
    {TCI_MEM_LOAD_N, "load_n", NULL, NULL},
    {TCI_MEM_LOAD_STRIDED, "load_strided", NULL, NULL},
    {TCI_MEM_LOAD_STRIDED_N, "load_strided_n", NULL, NULL},
    {TCI_MEM_LOAD_AT, "load_at", NULL, NULL},
    {TCI_MEM_STORE, "store", "#define $n(p, v) ((void)(*($A *)(p) = (v)))", NULL},
    {TCI_MEM_STORE_N, "store_n", NULL, NULL},
    {TCI_MEM_STORE_STREAM, "store_stream", NULL, NULL},
    {TCI_MEM_STORE_STRIDED, "store_strided", NULL, NULL},
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
    {TCI_MEM_INDEX, "index", NULL, NULL},
    {TCI_MEM_LANE, "lane", "TC_I $E $n($T v, int i) { return v[i]; }",
     "TC_I int $n($T v, int i) { return v[i] != 0; }"},
    {TCI_MEM_SET_LANE, "set_lane",
     "TC_I $T $n($T v, int i, $E x) {\n    v[i] = x;\n    return v;\n}",
     "TC_I $T $n($T v, int i, int x) {\n    v[i] = -x;\n    return v;\n}"},
    {TCI_MEM_HIGH_HALF, "high_half", NULL, NULL},
    {TCI_MEM_BELOW, "below", NULL, NULL},
    {TCI_MEM_SWAP_LOW, "swap_low", NULL, NULL},
    {TCI_MEM_SWAP_HIGH, "swap_high", NULL, NULL},
    {TCI_MEM_WEAVE_LOW, "weave_low", NULL, NULL},
    {TCI_MEM_WEAVE_HIGH, "weave_high", NULL, NULL},
    {TCI_MEM_PREFETCH, "prefetch", NULL, NULL},
    {TCI_MEM_FENCE, "fence", NULL, NULL},
    {TCI_MEM_LOAD_PAIRS, "load_pairs", "#define $n(p) (*(const $A *)(p))", NULL},
    {TCI_MEM_DOT_PAIRS, "dot_pairs",
     "#if defined(TC_PAIRS) && TC_GCC && __GNUC__ >= 10\n"
     "#pragma GCC target(\"avx512bf16\")\n"
     "#if __GNUC__ < 13\n"
     "typedef short $n_half __attribute__((vector_size(4 * $L)));\n"
     "#else\n"
     "typedef __bf16 $n_half __attribute__((vector_size(4 * $L)));\n"
     "#endif\n"
     "#define $n(c, a, b) __builtin_ia32_dpbf16ps_v$Lsf(c, ($n_half)(b), ($n_half)(a))\n"
     "#elif defined(TC_PAIRS)\n"
     "TC_I $T $n($T c, $T a, $T b) {\n"
     "    __asm__(\"vdpbf16ps %2, %1, %0\" : \"+v\"(c) : \"v\"(b), \"v\"(a));\n    return c;\n}\n"
     "#else\n"
     "TC_I $T $n($T c, $T a, $T b) {\n"
     "    $U x = ($U)a, y = ($U)b;\n"
     "    c = $4(($T)(x & 0xffff0000u), ($T)(y & 0xffff0000u), c);\n"
     "    return $4(($T)(x << 16), ($T)(y << 16), c);\n}\n"
     "#endif",
     NULL},
    {TCI_MEM_DOT_FOURS, "dot_fours", NULL, NULL},
    {TCI_MEM_STORE_PAIRS, "store_pairs",
     "TC_I void $n(void *p, $T a, $T b) {\n"
     "    $U x = ($U)a >> 16 | (($U)b & 0xffff0000u);\n    *($A *)p = ($T)x;\n}",
     NULL},
};

/* The same with one lane; $1 and $2 wrap the value read and the value written. */
static const char *const tci_c_dialect_mem_scalar[TCI_MEM_COUNT] = {
    [TCI_MEM_LOAD] = "#define $n(p) $1(*(p))",
    [TCI_MEM_LOAD_MASK] = "#define $n(p, m) ((m) ? $1(*(p)) : 0)",
    [TCI_MEM_LOAD_N] = "#define $n(p, n) $1(*(p))",
    [TCI_MEM_LOAD_STRIDED] = "#define $n(p, s) $1(*(p))",
    [TCI_MEM_LOAD_STRIDED_N] = "#define $n(p, s, n) $1(*(p))",
    [TCI_MEM_LOAD_AT] = "#define $n(p, i) $1((p)[i])",
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
    [TCI_MEM_BELOW] = "#define $n(v, none, h) (none)",
    [TCI_MEM_SWAP_LOW] = "#define $n(a, b, h) (a)",
    [TCI_MEM_SWAP_HIGH] = "#define $n(a, b, h) (b)",
    [TCI_MEM_WEAVE_LOW] = "#define $n(a, b) (a)",
    [TCI_MEM_WEAVE_HIGH] = "#define $n(a, b) (b)",
};

/* Vector rows whose storage is not the compute dtype: the row on the bits, $1, around $2. */
static const char *const tci_c_dialect_mem_wrapped[TCI_MEM_COUNT] = {
    [TCI_MEM_LOAD] = "#define $n(p) $2($1(p))",
    [TCI_MEM_LOAD_MASK] = "#define $n(p, m) $2($1(p, m))",
    [TCI_MEM_LOAD_N] = "#define $n(p, n) $2($1(p, n))",
    [TCI_MEM_LOAD_STRIDED] = "#define $n(p, s) $2($1(p, s))",
    [TCI_MEM_LOAD_STRIDED_N] = "#define $n(p, s, n) $2($1(p, s, n))",
    [TCI_MEM_LOAD_AT] = "#define $n(p, i) $2($1(p, i))",
    [TCI_MEM_STORE] = "#define $n(p, v) $1(p, $2(v))",
    [TCI_MEM_STORE_N] = "#define $n(p, v, n) $1(p, $2(v), n)",
    [TCI_MEM_STORE_STREAM] = "#define $n(p, v) $1(p, $2(v))",
    [TCI_MEM_STORE_STRIDED] = "#define $n(p, s, v) $1(p, s, $2(v))",
    [TCI_MEM_STORE_STRIDED_N] = "#define $n(p, s, v, n) $1(p, s, $2(v), n)",
};

/* Vector rows whose definition is more than a text. */
static void (*const tci_c_dialect_mem_made[TCI_MEM_COUNT])(tci_c_dialect_env *e, tci_mem m) = {
    [TCI_MEM_LOAD_MASK] = tci_c_dialect_define_masked_access,
    [TCI_MEM_LOAD_N] = tci_c_dialect_define_masked_access,
    [TCI_MEM_LOAD_STRIDED] = tci_c_dialect_define_strided,
    [TCI_MEM_LOAD_STRIDED_N] = tci_c_dialect_define_load_strided_n,
    [TCI_MEM_LOAD_AT] = tci_c_dialect_define_load_at,
    [TCI_MEM_STORE_N] = tci_c_dialect_define_masked_access,
    [TCI_MEM_STORE_STREAM] = tci_c_dialect_define_stream,
    [TCI_MEM_STORE_STRIDED] = tci_c_dialect_define_strided,
    [TCI_MEM_INDEX] = tci_c_dialect_define_index,
    [TCI_MEM_HIGH_HALF] = tci_c_dialect_define_high_half,
    [TCI_MEM_BELOW] = tci_c_dialect_define_below,
    [TCI_MEM_SWAP_LOW] = tci_c_dialect_define_swap,
    [TCI_MEM_SWAP_HIGH] = tci_c_dialect_define_swap,
    [TCI_MEM_WEAVE_LOW] = tci_c_dialect_define_weave,
    [TCI_MEM_WEAVE_HIGH] = tci_c_dialect_define_weave,
};

static void tci_c_dialect_define_mem_vector(tci_c_dialect_env *e, tci_mem m,
                                            const tci_c_dialect_mem_row *row)
{
    tci_c_dialect *cd = e->cd;
    if (tci_c_dialect_mem_made[m]) {
        tci_c_dialect_mem_made[m](e, m);
        return;
    }
    if (e->t == TC_I32 && (m == TCI_MEM_DOT_PAIRS || m == TCI_MEM_DOT_FOURS)) {
        tci_c_dialect_define_int_dot(e, m == TCI_MEM_DOT_FOURS);
        return;
    }
    e->piece[1] = tci_c_dialect_list(cd, e->lanes, "x", 1, e->lanes);
    e->piece[2] = tci_c_dialect_list(cd, e->lanes, "#", 1, e->lanes);
    e->piece[3] = e->t == TC_BOOL ? cd->d.type(&cd->d, tci_c_dialect_mask_dtype(cd, e->lanes), 1)
                  : m == TCI_MEM_DOT_PAIRS ? cd->d.prim(&cd->d, TCI_P_FMA, e->t, e->t, e->lanes, 0)
                                           : "";
    tci_c_dialect_define(e, e->t == TC_BOOL && row->b ? row->b : row->text);
}

/* Accesses whose value is scalar, and rows without a value. */
static const char *tci_c_dialect_mem_plain(tci_c_dialect *cd, tci_mem m)
{
    bool is_new;
    tci_c_dialect_env e = {cd, TC_F32, TC_F32, 1, NULL, {NULL}};
    e.name = tci_c_dialect_intern(cd, m == TCI_MEM_FENCE ? "tc_fence" : "tc_prefetch", &is_new);
    if (is_new) {
        tci_c_dialect_define(
            &e, m == TCI_MEM_FENCE
                    ? "#if defined(__x86_64__) && !defined(__TINYC__)\n"
                      "#define tc_fence() __builtin_ia32_sfence()\n#else\n#define "
                      "tc_fence() ((void)0)\n#endif"
                    : "#if defined(__TINYC__)\n#define tc_prefetch(p) ((void)0)\n#else\n"
                      "#define tc_prefetch(p) __builtin_prefetch(p)\n#endif");
    }
    return e.name;
}

/* Registers of a matrix unit: AMX, or arrays on the stack and the order of sums that AMX has (the
 * even and the odd products of 32 k apart). */
static const char tci_c_dialect_tiles[] =
    "#if defined(TC_AMX)\n"
    "static const unsigned char tc_tile_shape[64] __attribute__((aligned(64))) = {\n"
    "    1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64, [28] = 64,\n"
    "    [30] = 64,\n"
    "    [48] = 16, 16, 16, 16, 16, 16, 16, 16};\n"
    "#define tc_tiles_begin() __asm__ volatile(\"ldtilecfg %0\" : : \"m\"(tc_tile_shape))\n"
    "#define tc_tiles_end() __asm__ volatile(\"tilerelease\" : : : \"memory\")\n"
    "#define tc_tile_zero(n) __asm__ volatile(\"tilezero %%tmm%c0\" : : \"i\"(n))\n"
    "#define tc_tile_load(p, s, n) __asm__ volatile(\"tileloadd (%0,%1,1), %%tmm%c2\" \\\n"
    "    : : \"r\"(p), \"r\"((long)(s) * (long)sizeof(*(p))), \"i\"(n) : \"memory\")\n"
    "#define tc_tile_store(p, s, n) __asm__ volatile(\"tilestored %%tmm%c2, (%0,%1,1)\" \\\n"
    "    : : \"r\"(p), \"r\"((long)(s) * (long)sizeof(*(p))), \"i\"(n) : \"memory\")\n"
    "#define tc_tile_dot(n, ab) __asm__ volatile(\"tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0\" \\\n"
    "    : : \"i\"(n), \"i\"((ab) / 8), \"i\"((ab) % 8))\n"
    "#else\n"
    "typedef union {\n"
    "    float f[256]; unsigned short h[512]; int i[256]; signed char b[1024]; $T v[16];\n"
    "} tc_tile;\n"
    "#define tc_tiles_begin() tc_tile tc_tiles[8]\n"
    "#define tc_tiles_end() ((void)0)\n"
    "TC_I void tc_tile_fill(tc_tile *t) {\n"
    "    for (int i = 0; i < 16; i++) {\n        t->v[i] = ($T){0};\n    }\n}\n"
    "TC_I void tc_tile_get(const char *p, long s, tc_tile *t) {\n"
    "    for (int i = 0; i < 16; i++) {\n        t->v[i] = *(const $A *)(p + i * s);\n    }\n}\n"
    "TC_I void tc_tile_put(char *p, long s, const tc_tile *t) {\n"
    "    for (int i = 0; i < 16; i++) {\n        *($A *)(p + i * s) = t->v[i];\n    }\n}\n"
    "TC_I void tc_tile_add(tc_tile *c, const tc_tile *a, const tc_tile *b) {\n"
    "    for (int m = 0; m < 16; m++) {\n        for (int n = 0; n < 16; n++) {\n"
    "            float sum[2] = {0, 0};\n"
    "            for (int k = 0; k < 32; k++) {\n"
    "                sum[k % 2] = $1($2(a->h[m * 32 + k]), $2(b->h[k / 2 * 32 + n * 2 + k % 2]),\n"
    "                                sum[k % 2]);\n"
    "            }\n"
    "            c->f[m * 16 + n] += sum[0] + sum[1];\n"
    "        }\n    }\n}\n"
    "#define tc_tile_zero(n) tc_tile_fill(&tc_tiles[n])\n"
    "#define tc_tile_load(p, s, n) \\\n"
    "    tc_tile_get((const char *)(p), (long)(s) * (long)sizeof(*(p)), &tc_tiles[n])\n"
    "#define tc_tile_store(p, s, n) \\\n"
    "    tc_tile_put((char *)(p), (long)(s) * (long)sizeof(*(p)), &tc_tiles[n])\n"
    "#define tc_tile_dot(n, ab) \\\n"
    "    tc_tile_add(&tc_tiles[n], &tc_tiles[(ab) / 8], &tc_tiles[(ab) % 8])\n"
    "#endif";

/* The same of bytes: signs as in loop/intrinsics.h. */
static const char tci_c_dialect_tile_fours[] =
    "#if defined(TC_AMX)\n"
    "#define tc_tile_fours_(op, n, ab) \\\n"
    "    __asm__ volatile(op \" %%tmm%c2, %%tmm%c1, %%tmm%c0\" \\\n"
    "    : : \"i\"(n), \"i\"((ab) % 64 / 8), \"i\"((ab) % 8))\n"
    "#define tc_tile_fours(n, ab) do { \\\n"
    "    switch ((ab) / 64) { \\\n"
    "    case 0: tc_tile_fours_(\"tdpbssd\", n, ab); break; \\\n"
    "    case 1: tc_tile_fours_(\"tdpbsud\", n, ab); break; \\\n"
    "    case 2: tc_tile_fours_(\"tdpbusd\", n, ab); break; \\\n"
    "    default: tc_tile_fours_(\"tdpbuud\", n, ab); break; \\\n"
    "    } } while (0)\n"
    "#else\n"
    "TC_I void tc_tile_add_fours(tc_tile *c, const tc_tile *a, const tc_tile *b, int signs) {\n"
    "    for (int m = 0; m < 16; m++) {\n        for (int n = 0; n < 16; n++) {\n"
    "            unsigned sum = (unsigned)c->i[m * 16 + n];\n"
    "            for (int k = 0; k < 64; k++) {\n"
    "                int x = a->b[m * 64 + k], y = b->b[k / 4 * 64 + n * 4 + k % 4];\n"
    "                sum += (unsigned)((signs & 2 ? x & 255 : x) * (signs & 1 ? y & 255 : y));\n"
    "            }\n"
    "            c->i[m * 16 + n] = (int)sum;\n"
    "        }\n    }\n}\n"
    "#define tc_tile_fours(n, ab) tc_tile_add_fours(&tc_tiles[n], &tc_tiles[(ab) % 64 / 8], \\\n"
    "                                               &tc_tiles[(ab) % 8], (ab) / 64)\n"
    "#endif";

static const char *tci_c_dialect_mem_tile(tci_c_dialect *cd, tci_mem m)
{
    static const char *const names[] = {"tc_tiles_begin", "tc_tile_zero", "tc_tile_load",
                                        "tc_tile_store",  "tc_tile_dot",  "tc_tile_fours",
                                        "tc_tiles_end"};
    bool is_new;
    tci_c_dialect_env e = {cd,    TC_F32, TC_F32, 16, tci_c_dialect_intern(cd, "tc_tile", &is_new),
                           {NULL}};
    if (is_new) {
        e.piece[0] = cd->d.prim(&cd->d, TCI_P_FMA, TC_F32, TC_F32, 1, 0);
        e.piece[1] = tci_c_dialect_widen(cd, TC_F32, TC_BF16, 1);
        tci_c_dialect_define(&e, tci_c_dialect_tiles);
    }
    if (m == TCI_MEM_TILE_FOURS) {
        e.name = tci_c_dialect_intern(cd, "tc_tile_fours", &is_new);
        if (is_new) {
            tci_c_dialect_define(&e, tci_c_dialect_tile_fours);
        }
    }
    return names[m - TCI_MEM_TILES_BEGIN];
}

TCI_FN const char *tci_c_dialect_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                                     int lanes)
{
    tci_c_dialect *cd = d->state;
    if (m >= TCI_MEM_TILES_BEGIN && m <= TCI_MEM_TILES_END) {
        return tci_c_dialect_mem_tile(cd, m);
    }
    if (m == TCI_MEM_STORE_PAIRS || m == TCI_MEM_LOAD_PAIRS) {
        storage = compute; /* it rounds nothing: bf16 values are the upper halves */
    }
    if (m == TCI_MEM_FENCE || m == TCI_MEM_PREFETCH) {
        return tci_c_dialect_mem_plain(cd, m);
    }
    if (m == TCI_MEM_LOAD_ONE || m == TCI_MEM_STORE_ONE || m == TCI_MEM_STORE_LANE) {
        return tci_c_dialect_mem(d, m == TCI_MEM_LOAD_ONE ? TCI_MEM_LOAD : TCI_MEM_STORE, compute,
                                 storage, 1);
    }
    const tci_c_dialect_mem_row *row = NULL;
    for (int i = 0; i < TCI_COUNT(tci_c_dialect_mem_rows); i++) {
        row = tci_c_dialect_mem_rows[i].mem == m ? &tci_c_dialect_mem_rows[i] : row;
    }
    bool wrapped = tci_c_dialect_mem_wrapped[m] && (compute != storage || compute == TC_BOOL);
    const char *name = tci_scratch_printf(d->s, "tc_%s_%s%s%s", row->name,
                                          tci_c_dialect_suffix(cd, compute, lanes),
                                          wrapped ? "_" : "",
                                          wrapped ? tci_dtype_get(storage)->name : "");
    bool is_new;
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (!is_new) {
        return name;
    }
    tci_c_dialect_env e = {cd, compute, compute, lanes, name, {NULL}};
    bool writes = tci_lmem_uses(m) & TCI_LMEM_WRITES;
    const char *wrap = !wrapped ? ""
                       : writes ? tci_c_dialect_narrow(cd, compute, storage, lanes)
                                : tci_c_dialect_widen(cd, compute, storage, lanes);
    if (lanes == 1) {
        e.piece[0] = wrap;
        e.piece[1] = wrap;
        tci_c_dialect_define(&e, tci_c_dialect_mem_scalar[m]);
    } else if (wrapped) {
        tc_dtype bits = tci_c_dialect_storage_bits(storage);
        e.piece[0] = tci_c_dialect_mem(d, m, bits, bits, lanes);
        e.piece[1] = wrap;
        tci_c_dialect_define(&e, tci_c_dialect_mem_wrapped[m]);
    } else {
        tci_c_dialect_define_mem_vector(&e, m, row);
    }
    return name;
}
