/* cpu/dialect.c - the C dialect: how types, prims and memory accesses are spelled for gcc, clang and tcc.
 *
 * In: requests by name (emit/dialect.h). Out: names at once, and their definitions as C text without
 * any #include, for scalar code and for vectors of the compilers' vector extension.
 * The one idea: a request whose name is new has its definition expanded from a template, and whatever the
 * template mentions is requested on the way; a definition is appended to the text only when it is
 * complete, so the text is always in an order that compiles, and each name is in it once.
 * Three layers: an operator of the vector extension where there is one; else an x86 builtin of the exact
 * instruction, under TC_GCC or TC_HAS(builtin); else a loop over the lanes of the scalar definition,
 * which is plain C and the meaning that everything else equals bit for bit (tests/cpu/test_dialect.c).
 * Memory rows are in cpu/memory.c, the longer texts in cpu/soft.c.
 * Invariant: no definition needs libm, libgcc or memcpy, nor touches an element that its row excludes. */
#include <string.h>

#include "spell.h"

#include "../base/hash.h"
#include "../loop/loop.h"

/* ---- definitions ---- */

static const char **tci_cd_slot(tci_cd *cd, const char *name) {
    int at = (int)(tci_hash_bytes(name, strlen(name)).lo & (uint64_t)(cd->cap_names - 1));
    while (cd->names[at] && strcmp(cd->names[at], name) != 0) {
        at = (at + 1) & (cd->cap_names - 1);
    }
    return &cd->names[at];
}

TCI_FN const char *tci_cd_intern(tci_cd *cd, const char *name, bool *is_new) {
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
static const char *tci_cd_machine_type(tci_cd *cd, const char *text, int n) {
    static const struct {
        char code[3];
        const char *ctype;
        int bytes;
    } rows[] = {{"qi", "char", 1}, {"hi", "short", 2}, {"si", "int", 4},
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
                tci_str_printf(&cd->out, "typedef %s %s __attribute__((vector_size(%d)));\n", rows[i].ctype,
                               name, lanes * rows[i].bytes);
            }
        }
    }
    return name;
}

static const char *tci_cd_letter(const tci_cd_env *e, char letter) {
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
static const char *tci_cd_mention(const tci_cd_env *e, const char *word, int n, bool scalar) {
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

static bool tci_cd_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static void tci_cd_expand(const tci_cd_env *e, const char *text, tci_str *out) {
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

TCI_FN void tci_cd_define(const tci_cd_env *e, const char *text) {
    tci_str own = {0};
    own.s = e->cd->d.s;
    tci_cd_expand(e, text, &own);
    tci_str_add_n(&e->cd->out, tci_str_text(&own), own.n);
    tci_str_add(&e->cd->out, "\n");
}

TCI_FN const char *tci_cd_list(tci_cd *cd, int n, const char *format, int step, int modulo) {
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

TCI_FN tc_dtype tci_cd_sint(int bytes) {
    return bytes == 1 ? TC_I8 : bytes == 2 ? TC_I16 : bytes == 4 ? TC_I32 : TC_I64;
}

TCI_FN tc_dtype tci_cd_uint(int bytes) {
    return bytes == 1 ? TC_U8 : bytes == 2 ? TC_U16 : bytes == 4 ? TC_U32 : TC_U64;
}

TCI_FN tc_dtype tci_cd_mask_dtype(const tci_cd *cd, int lanes) {
    int bytes = cd->d.vector_bytes / lanes;
    return tci_cd_sint(bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1);
}

TCI_FN const char *tci_cd_suffix(tci_cd *cd, tc_dtype t, int lanes) {
    const char *name = tci_dtype_get(t)->name;
    return lanes == 1 ? name : tci_scratch_printf(cd->d.s, "%sx%d", name, lanes);
}

static const char *tci_cd_type(tci_dialect *d, tc_dtype t, int lanes) {
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

TCI_FN const char *tci_cd_unaligned(tci_cd *cd, tc_dtype t, int lanes) {
    bool is_new;
    const char *type = tci_cd_type(&cd->d, t, lanes);
    const char *name = tci_cd_intern(cd, tci_scratch_printf(cd->d.s, "%s_u", type), &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef %s %s __attribute__((aligned(1), may_alias));\n", type, name);
    }
    return name;
}

/* ---- conversion of vectors, values known in range ---- */

/* The vector `a` of `bytes` as an x86 register of at least 16 bytes; what it does not fill is anything. */
TCI_FN const char *tci_cd_to_register(int bytes) {
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

/* The low `bytes` of the register expression $2, as $R. */
TCI_FN const char *tci_cd_from_register(int bytes) {
    switch (bytes) {
    case 2:
        return "($R)(({v8hi})$2)[0]";
    case 4:
        return "($R)(({v4si})$2)[0]";
    case 8:
        return "($R)(({v2di})$2)[0]";
    default:
        return "($R)$2";
    }
}

static char tci_cd_size_letter(int bytes) {
    return bytes == 1 ? 'b' : bytes == 2 ? 'w' : bytes == 4 ? 'd' : 'q';
}

static const char *tci_cd_size_mode(int bytes) {
    return bytes == 1 ? "qi" : bytes == 2 ? "hi" : bytes == 4 ? "si" : "di";
}

/* Template of gcc's expression for an integer vector `a` made wider: one vpmovzx or vpmovsx. */
static const char *tci_cd_widen_int(tci_cd *cd, tc_dtype from, int in, int out, int lanes) {
    char sign = tci_dtype_is_signed(from) ? 's' : 'z';
    int register_bytes = TCI_MAX(in * lanes, 16);
    const char *argument = tci_scratch_printf(cd->d.s, "({v%d%s})%s", register_bytes / in,
                                              tci_cd_size_mode(in), tci_cd_to_register(in * lanes));
    const char *rest = out * lanes < 64 ? "" : tci_scratch_printf(cd->d.s, ", ({v%d%s}){0}, -1", lanes,
                                                                  tci_cd_size_mode(out));
    return tci_scratch_printf(cd->d.s, "($R)__builtin_ia32_pmov%cx%c%c%d%s(%s%s)", sign,
                              tci_cd_size_letter(in), tci_cd_size_letter(out), out * lanes * 8,
                              out * lanes < 64 ? "" : "_mask", argument, rest);
}

/* The same for narrower: one vpmov of AVX-512, else a byte shuffle. */
static const char *tci_cd_narrow_int(tci_cd *cd, int in, int out, int lanes) {
    const char *low;
    if (cd->d.vector_bytes == 64) {
        int register_bytes = TCI_MAX(out * lanes, 16);
        low = tci_scratch_printf(cd->d.s, "__builtin_ia32_pmov%c%c%d_mask(({v%d%s})a, ({v%d%s}){0}, -1)",
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
        low = tci_scratch_printf(cd->d.s, "__builtin_shuffle(({v%dqi})a, ({v%dqi}){%s})", total, total,
                                 tci_str_text(&order));
        if (total == 32) {
            low = tci_scratch_printf(cd->d.s, "__builtin_ia32_vextractf128_si256(({v8si})%s, 0)", low);
        }
    }
    tci_str out_text = {0};
    out_text.s = cd->d.s;
    for (const char *c = tci_cd_from_register(out * lanes); *c; c++) {
        if (*c == '$' && c[1] == '2') {
            tci_str_add(&out_text, low);
            c++;
        } else {
            tci_str_add_n(&out_text, c, 1);
        }
    }
    return tci_str_text(&out_text);
}

/* gcc's expression where its own __builtin_convertvector takes the vector apart (seen in gcc 12), else NULL. */
static const char *tci_cd_convert_gcc(tci_cd *cd, tc_dtype from, tc_dtype to, int lanes) {
    int in = tci_dtype_get(from)->bytes;
    int out = tci_dtype_get(to)->bytes;
    int widest = TCI_MAX(in, out) * lanes;
    bool wide512 = widest == 64;
    if (cd->d.vector_bytes < 32 || widest > cd->d.vector_bytes || widest < 16) {
        return NULL;
    }
    if (tci_dtype_is_int(from) && tci_dtype_is_int(to)) {
        return out > in ? tci_cd_widen_int(cd, from, in, out, lanes) : tci_cd_narrow_int(cd, in, out, lanes);
    }
    if (widest < 32) {
        return NULL;
    }
    if (from == TC_F32 && to == TC_F64) {
        return wide512 ? "__builtin_ia32_cvtps2pd512_mask(a, ($R){0}, -1, 4)" : "__builtin_ia32_cvtps2pd256(a)";
    }
    if (from == TC_I32 && to == TC_F64) {
        return wide512 ? "__builtin_ia32_cvtdq2pd512_mask(a, ($R){0}, -1)" : "__builtin_ia32_cvtdq2pd256(a)";
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

/* Name of the vector conversion `from` -> `to` of numbers that `to` can hold (integers wrap). */
TCI_FN const char *tci_cd_convert(tci_cd *cd, tc_dtype from, tc_dtype to, int lanes) {
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

/* The mask of an integer vector of 0 / -1 that has the shape of t, and back: names of conversions. */
TCI_FN const char *tci_cd_to_mask(tci_cd *cd, tc_dtype t, int lanes) {
    return tci_cd_convert(cd, tci_cd_sint(tci_dtype_get(t)->bytes), tci_cd_mask_dtype(cd, lanes), lanes);
}

TCI_FN const char *tci_cd_of_mask(tci_cd *cd, tc_dtype t, int lanes) {
    return tci_cd_convert(cd, tci_cd_mask_dtype(cd, lanes), tci_cd_sint(tci_dtype_get(t)->bytes), lanes);
}

/* ---- prims by operator ---- */

/* where: '1' scalar, 'v' vector, '*' both; then the kinds of the operands' dtype: f float, s signed, u
 * unsigned, b bool (as a mask 0 / -1 in vectors). A macro uses each argument once. */
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

static char tci_cd_kind(tc_dtype t) {
    return t == TC_BOOL ? 'b' : tci_dtype_is_float(t) ? 'f' : tci_dtype_is_signed(t) ? 's' : 'u';
}

static const char *tci_cd_find_row(tci_prim p, tc_dtype t, int lanes) {
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
    const char *small_name, *small_args;       /* 16 and 32 bytes, both compilers */
    const char *gcc_name, *gcc_args;           /* 64 bytes */
    const char *clang_name, *clang_args;
    const char *elementwise;                   /* newer clang; NULL none */
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
static const char *tci_cd_lane_body(const tci_cd_env *e, const char *scalar, int n_args) {
    static const char *const elements[4] = {"", "a[#]", "a[#], b[#]", "a[#], b[#], c[#]"};
    static const char *const loops[4] = {"", "a[i]", "a[i], b[i]", "a[i], b[i], c[i]"};
    tci_scratch *s = e->cd->d.s;
    if (e->lanes <= 8) {
        const char *call = tci_scratch_printf(s, "%s(%s)", scalar, elements[n_args]);
        return tci_scratch_printf(s, "    return ($R){%s};\n",
                                  tci_cd_list(e->cd, e->lanes, call, 1, e->lanes));
    }
    return tci_scratch_printf(s, "    $R r;\n    for (int i = 0; i < $L; i++) {\n        r[i] = %s(%s);\n"
                                 "    }\n    return r;\n", scalar, loops[n_args]);
}

static void tci_cd_define_lanes(tci_cd_env *e, const char *scalar, int n_args) {
    e->piece[0] = tci_cd_params[n_args];
    e->piece[1] = tci_cd_lane_body(e, scalar, n_args);
    tci_cd_define(e, "TC_I $R $n($1) {\n$2}");
}

/* A vector wider than the machine's, done in native parts. */
static void tci_cd_define_parts(tci_cd_env *e, tci_prim p, int n_args) {
    tci_cd *cd = e->cd;
    int native = cd->d.vector_bytes / tci_dtype_get(e->t)->bytes;
    const char *part = tci_cd_type(&cd->d, e->t, native);
    e->piece[0] = tci_cd_params[n_args];
    e->piece[1] = tci_scratch_printf(cd->d.s, "    union { $T v; %s h[%d]; } x, y, z, r;\n    x.v = a;\n%s%s", part,
                                     e->lanes / native, n_args > 1 ? "    y.v = b;\n" : "",
                                     n_args > 2 ? "    z.v = c;\n" : "");
    e->piece[2] = tci_scratch_printf(
        cd->d.s, "    for (int i = 0; i < %d; i++) {\n        r.h[i] = %s(%s);\n    }\n    return r.v;\n",
        e->lanes / native, cd->d.prim(&cd->d, p, e->t, e->t, native, 0),
        n_args == 1 ? "x.h[i]" : n_args == 2 ? "x.h[i], y.h[i]" : "x.h[i], y.h[i], z.h[i]");
    tci_cd_define(e, "TC_I $T $n($1) {\n$2$3}");
}

static bool tci_cd_define_builtin(tci_cd_env *e, tci_prim p, int n_args) {
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
    tci_str_printf(&text, "#elif TC_HAS(__builtin_ia32_%s)\n    return __builtin_ia32_%s(%s);\n", clang_name,
                   clang_name, small ? b->small_args : b->clang_args);
    if (b->elementwise) {
        tci_str_printf(&text, "#elif TC_HAS(__builtin_elementwise_%s)\n    return __builtin_elementwise_%s(%s);\n",
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

static void tci_cd_define_select(tci_cd_env *e) {
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
                                              size == 4 ? "sf" : size == 8 ? "df" : "qi");
        tci_str_printf(&text, "#if TC_GCC || TC_HAS(__builtin_ia32_%s%s)\n"
                              "    return ($T)__builtin_ia32_%s%s((%s)b, (%s)a, (%s)m);\n#else\n",
                       name, width, name, width, type, type, type);
    }
    tci_str_add(&text, "    return ($T)((m & ($I)a) | (~m & ($I)b));\n");
    tci_str_add(&text, bytes == 16 || bytes == 32 ? "#endif\n}" : "}");
    tci_cd_define(e, tci_str_text(&text));
}

/* ---- casts ---- */

/* Bounds of an integer dtype as texts: [0] lowest, [1] highest, [2] and [3] the floats lo <= x < hi
 * that truncate into range (2 to the bits, exact in any float). as_bits: highest of an unsigned type
 * as the signed number of the same bits, where that is what an operator wants. */
static void tci_cd_bounds(tci_cd_env *e, tc_dtype to, bool as_bits) {
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

static void tci_cd_define_cast_scalar(tci_cd_env *e) {
    bool float_in = tci_dtype_is_float(e->t);
    bool float_out = tci_dtype_is_float(e->to);
    if (e->to == TC_BOOL) {
        tci_cd_define(e, "#define $n(a) ((a) != 0)");
    } else if (float_in && !float_out) {
        tci_cd_bounds(e, e->to, false);
        tci_cd_define(e, e->to == TC_U64
                             ? "TC_I $R $n($T a) {\n    if (!(a >= 0)) {\n        return 0;\n    }\n"
                               "    if (a >= $4) {\n        return $2;\n    }\n"
                               "    return a >= 0x1p63f ? ($R)(long long)(a - 0x1p63f) + ((($R)1) << 63)\n"
                               "                        : ($R)(long long)a;\n}"
                             : "TC_I $R $n($T a) {\n    if (!(a >= $3)) {\n        return a < $3 ? $1 : 0;\n    }\n"
                               "    return a >= $4 ? $2 : ($R)(long long)a;\n}");
    } else if (e->t == TC_U64 && float_out) {
        /* Halved with the lost bit kept sticky, a signed conversion rounds the same way. */
        tci_cd_define(e, "TC_I $R $n($T a) {\n    if (!(a >> 63)) {\n        return ($R)(long long)a;\n    }\n"
                         "    return ($R)(long long)((a >> 1) | (a & 1)) * 2;\n}");
    } else {
        tci_cd_define(e, "#define $n(a) (($R)(a))");
    }
}

/* float -> int: lanes out of range are zeroed before the conversion and or-ed afterwards. */
static void tci_cd_define_cast_float_int(tci_cd_env *e) {
    tci_cd *cd = e->cd;
    tci_scratch *s = cd->d.s;
    tc_dtype wide = tci_dtype_get(e->to)->bytes < 4 ? TC_I32 : e->to;
    tc_dtype wide_signed = tci_cd_sint(tci_dtype_get(wide)->bytes);
    const char *wide_type = tci_cd_type(&cd->d, wide_signed, e->lanes);
    const char *mask = tci_cd_convert(cd, tci_cd_sint(tci_dtype_get(e->t)->bytes), wide_signed, e->lanes);
    const char *convert = tci_cd_convert(cd, e->t, wide, e->lanes);
    const char *last = tci_cd_convert(cd, wide_signed, e->to, e->lanes);
    tci_cd_bounds(e, e->to, true);
    const char *low = tci_dtype_is_signed(e->to)
                          ? tci_scratch_printf(s, "    r |= %s(($I)(a < $3)) & $1;\n", mask)
                          : "";
    tci_cd_define(e, tci_scratch_printf(s,
                                        "TC_I $R $n($T a) {\n    $I ok = ($I)(a >= $3) & ($I)(a < $4);\n"
                                        "    %s r = (%s)%s(($T)(($I)a & ok));\n"
                                        "    r |= %s(($I)(a >= $4)) & $2;\n%s    return %s(r);\n}",
                                        wide_type, wide_type, convert, mask, low, last));
}

static void tci_cd_define_cast_vector(tci_cd_env *e) {
    tci_cd *cd = e->cd;
    if (e->t == e->to) {
        tci_cd_define(e, "#define $n(a) (a)");
    } else if (e->to == TC_BOOL) {
        e->piece[0] = tci_cd_to_mask(cd, e->t, e->lanes);
        tci_cd_define(e, "#define $n(a) $1(($I)((a) != 0))");
    } else if (e->t == TC_BOOL) {
        tc_dtype same = tci_cd_sint(tci_dtype_get(e->to)->bytes);
        e->piece[0] = tci_cd_of_mask(cd, e->to, e->lanes);
        e->piece[1] = e->to == TC_F32 ? "0x3f800000" : e->to == TC_F64 ? "0x3ff0000000000000LL" : "1";
        e->piece[2] = tci_cd_type(&cd->d, same, e->lanes);
        tci_cd_define(e, "TC_I $R $n($T a) { $3 m = $1(a); return ($R)(m & $2); }");
    } else if (tci_dtype_is_float(e->t) && tci_dtype_is_int(e->to)) {
        tci_cd_define_cast_float_int(e);
    } else {
        e->piece[0] = tci_cd_convert(cd, e->t, e->to, e->lanes);
        tci_cd_define(e, "#define $n(a) $1(a)");
    }
}

/* ---- helpers and recipes ---- */

static void tci_cd_define_helper(tci_cd *cd, int id) {
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

/* LANE1: one test, and the helper's text on the active lanes only. The loop is kept out of line, so that
 * its registers do not weigh on the code that almost never runs it. */
static void tci_cd_define_lane1(tci_cd_env *e, int id) {
    const tci_helper *h = tci_helper_get(id);
    tci_cd *cd = e->cd;
    bool two = h->arity == 2;
    tci_cd_define_helper(cd, id);
    e->piece[0] = two ? "$T a, $T b" : "$T a";
    e->piece[1] = h->name;
    if (e->lanes == 1) {
        tci_cd_define(e, two ? "TC_I $T $n($1, tc_bool m) { return m ? ($T)$2(a, b) : 0; }"
                             : "TC_I $T $n($1, tc_bool m) { return m ? $2(a) : 0; }");
        return;
    }
    e->piece[2] = tci_cd_any(cd, e->lanes);
    e->piece[3] = two ? "a, b" : "a";
    tci_cd_define(e, two ? "static __attribute__((noinline)) $T $n_lanes($1, $B m) {\n    $T r = {0};\n"
                           "    for (int i = 0; i < $L; i++) {\n        if (m[i]) {\n"
                           "            r[i] = $2(a[i], b[i]);\n        }\n    }\n    return r;\n}"
                         : "static __attribute__((noinline)) $T $n_lanes($1, $B m) {\n    $T r = {0};\n"
                           "    for (int i = 0; i < $L; i++) {\n        if (m[i]) {\n"
                           "            r[i] = $2(a[i]);\n        }\n    }\n    return r;\n}");
    tci_cd_define(e, "TC_I $T $n($1, $B m) {\n    if (__builtin_expect($3(m), 0)) {\n"
                     "        return $n_lanes($4, m);\n    }\n    return ($T){0};\n}");
}

static void tci_cd_define_recipe(tci_cd_env *e, tci_prim p, int n_args) {
    tci_cd *cd = e->cd;
    tci_dialect *d = &cd->d;
    const tci_recipe *r = tci_math_recipe(p, e->t);
    tci_str text = {0};
    text.s = d->s;
    tci_str_printf(&text, "TC_I $T $n(%s) {\n", tci_cd_params[n_args]);
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *step = &r->insts[i];
        tc_dtype t = (tc_dtype)step->dtype;
        tci_str_printf(&text, "    %s v%d = ", d->type(d, t, e->lanes), i);
        if (step->kind == TCI_RECIPE_ARG) {
            tci_str_printf(&text, "%c;\n", 'a' + step->imm);
        } else if (step->kind == TCI_RECIPE_CONST) {
            tci_str_printf(&text, "%s(%s);\n", d->mem(d, TCI_MEM_SPLAT, t, t, e->lanes),
                           d->constant(d, t, step->value));
        } else {
            int typed = step->prim == TCI_P_SELECT ? 1 : 0;
            tc_dtype operand = (tc_dtype)r->insts[step->args[typed]].dtype;
            tci_str_add(&text, d->prim(d, (tci_prim)step->prim, operand, t, e->lanes, step->imm));
            for (int k = 0; k < step->n_args; k++) {
                tci_str_printf(&text, "%sv%d", k ? ", " : "(", step->args[k]);
            }
            tci_str_add(&text, ");\n");
        }
    }
    tci_str_printf(&text, "    return v%d;\n}", r->n - 1);
    tci_cd_define(e, tci_str_text(&text));
}

/* ---- the dialect ---- */

static void tci_cd_define_prim(tci_cd_env *e, tci_prim p, int imm) {
    tci_cd *cd = e->cd;
    int n_args = tci_prim_get(p)->arity;
    const char *text = tci_cd_find_row(p, e->t, e->lanes);
    bool is_vector = e->lanes > 1;
    if (tci_prim_is_math(p)) {
        tci_cd_define_recipe(e, p, n_args);
    } else if (p == TCI_P_LANE1) {
        tci_cd_define_lane1(e, imm);
    } else if (p == TCI_P_CAST) {
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
        tci_cd_define_lanes(e, cd->d.prim(&cd->d, p, e->t, e->to, 1, imm), n_args);
    }
}

static const char *tci_cd_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm) {
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

/* Hex floats with an integer mantissa: no decimal point, so the host's locale cannot change the text. */
static const char *tci_cd_constant_float(tci_dialect *d, tc_dtype t, double x) {
    const char *f = t == TC_F32 ? "f" : "";
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const char *sign = bits >> 63 ? "-" : "";
    int exponent = (int)(bits >> 52) & 2047;
    uint64_t mantissa = bits & 0xfffffffffffffu;
    if (exponent == 2047) {
        return tci_scratch_printf(d->s, "(%s%d.0%s / 0.0%s)", sign, mantissa == 0, f, f);
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

static const char *tci_cd_constant(tci_dialect *d, tc_dtype t, tci_value v) {
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

/* TC_GCC and TC_HAS(x): this compiler has the x86 builtins as gcc, as clang, spells them. TC_CONVERT: it
 * has __builtin_convertvector. */
static void tci_cd_prelude(tci_dialect *d, tci_str *out) {
    tci_cd *cd = d->state;
    tci_str_add(out, "#if defined(__clang__) && (defined(__FMA__) || !defined(__x86_64__))\n"
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

TCI_FN tci_dialect *tci_dialect_c(tci_scratch *s, int vector_bytes) {
    tci_cd *cd = TCI_NEW(s, tci_cd);
    cd->d.name = "c";
    cd->d.restrict_word = "__restrict__";
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
