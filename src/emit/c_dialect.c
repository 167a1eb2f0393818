/* emit/c_dialect.c - implements the C dialect: types, primitives and memory accesses as C source
 * for gcc, clang and tcc.
 *
 * In: requests by name (emit/dialect.h). Out: names at once, and their definitions as C source
 * without any #include, for scalar code and for the compilers' vector extension. Design: the
 * definition of a new name is expanded from a template, and everything that the template refers to
 * is requested recursively; a definition is appended to the text only when it is complete, so the
 * text is always in an order that compiles, and each name is in it once. c_prims.c has the prims,
 * c_memory.c the memory rows, c_fallbacks.c plain C for what a processor or compiler lacks;
 * expansions of ops/math.c are printed here, one local variable per value. Invariant: no definition
 * needs libm, libgcc or memcpy, or accesses an element that is masked out. */
#include <string.h>

#include "c_templates.h"

#include "../base/hash.h"
#include "../loop/ir.h"

static const char *tci_c_dialect_type(tci_dialect *d, tc_dtype t, int lanes);

/* ---- definitions ---- */

static const char **tci_c_dialect_slot(tci_c_dialect *cd, const char *name)
{
    int at = (int)(tci_hash_bytes(name, strlen(name)).lo & (uint64_t)(cd->cap_names - 1));
    while (cd->names[at] && strcmp(cd->names[at], name) != 0) {
        at = (at + 1) & (cd->cap_names - 1);
    }
    return &cd->names[at];
}

TCI_FN const char *tci_c_dialect_intern(tci_c_dialect *cd, const char *name, bool *is_new)
{
    if (cd->n_names * 2 >= cd->cap_names) {
        const char **old = cd->names;
        int old_cap = cd->cap_names;
        cd->cap_names = old_cap ? old_cap * 2 : 128;
        cd->names = TCI_NEW_ARRAY(cd->d.s, const char *, cd->cap_names);
        for (int i = 0; i < old_cap; i++) {
            if (old[i]) {
                *tci_c_dialect_slot(cd, old[i]) = old[i];
            }
        }
    }
    const char **slot = tci_c_dialect_slot(cd, name);
    *is_new = *slot == NULL;
    if (*is_new) {
        *slot = tci_scratch_copy(cd->d.s, name, strlen(name) + 1);
        cd->n_names++;
    }
    return *slot;
}

/* "{v16si}": a vector type as x86 builtins declare it. */
static const char *tci_c_dialect_machine_type(tci_c_dialect *cd, const char *text, int n)
{
    static const struct {
        char code[3];
        const char *ctype;
        int bytes;
    } rows[] = {{"qi", "char", 1},      {"hi", "short", 2}, {"si", "int", 4},
                {"di", "long long", 8}, {"sf", "float", 4}, {"df", "double", 8}};
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, tci_scratch_printf(cd->d.s, "tc_%.*s", n, text),
                                            &is_new);
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

static const char *tci_c_dialect_letter(const tci_c_dialect_env *e, char letter)
{
    tci_c_dialect *cd = e->cd;
    int bytes = tci_dtype_get(e->t)->bytes;
    switch (letter) {
    case 'T': return cd->d.type(&cd->d, e->t, e->lanes);
    case 'E': return cd->d.type(&cd->d, e->t, 1);
    case 'R': return cd->d.type(&cd->d, e->to, e->lanes);
    case 'I': return cd->d.type(&cd->d, tci_c_dialect_sint(bytes), e->lanes);
    case 'U': return cd->d.type(&cd->d, tci_c_dialect_uint(bytes), e->lanes);
    case 'V': return cd->d.type(&cd->d, tci_c_dialect_uint(bytes), 1);
    case 'B': return cd->d.type(&cd->d, TC_BOOL, e->lanes);
    case 'A': return tci_c_dialect_unaligned(cd, e->t, e->lanes);
    case 'L': return tci_scratch_printf(cd->d.s, "%d", e->lanes);
    case 'W': return tci_scratch_printf(cd->d.s, "%d", 8 * bytes);
    case 'f': return e->t == TC_F32 ? "f" : "";
    case 'C': return e->t == TC_F32 ? "F32" : "F64";
    case 'n': return e->name;
    default: return e->piece[letter - '1'];
    }
}

/* "@lt": the BASE prim of that name on the template's type; "@@lt": on its element. */
static const char *tci_c_dialect_mention(const tci_c_dialect_env *e, const char *word, int n,
                                         bool scalar)
{
    tci_c_dialect *cd = e->cd;
    for (int p = 0; p < TCI_P_BASE_COUNT; p++) {
        const char *name = tci_prim_get((tci_prim)p)->name;
        if ((int)strlen(name) == n && strncmp(name, word, (size_t)n) == 0) {
            return cd->d.prim(&cd->d, (tci_prim)p, e->t, e->t, scalar ? 1 : e->lanes, 0);
        }
    }
    TCI_ASSERT(cd->d.s, !"a template names an unknown prim");
    return "";
}

static bool tci_c_dialect_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static void tci_c_dialect_expand(const tci_c_dialect_env *e, const char *text, tci_str *out)
{
    tci_c_dialect *cd = e->cd;
    while (*text) {
        size_t plain = strcspn(text, "$@{");
        tci_str_add_n(out, text, plain);
        text += plain;
        if (*text == '$') {
            const char *meaning = tci_c_dialect_letter(e, text[1]);
            if (text[1] >= '1' && text[1] <= '4') {
                tci_c_dialect_expand(e, meaning, out); /* pieces may be templates themselves */
            } else {
                tci_str_add(out, meaning);
            }
            text += 2;
        } else if (*text == '@') {
            bool scalar = text[1] == '@';
            const char *word = text + 1 + scalar;
            int n = 0;
            while (tci_c_dialect_is_word(word[n])) {
                n++;
            }
            tci_str_add(out, tci_c_dialect_mention(e, word, n, scalar));
            text = word + n;
        } else if (*text == '{' && text[1] == 'v' && text[2] >= '0' && text[2] <= '9') {
            int n = (int)strcspn(text + 1, "}");
            tci_str_add(out, tci_c_dialect_machine_type(cd, text + 1, n));
            text += n + 2;
        } else if (*text) {
            tci_str_add_n(out, text, 1);
            text++;
        }
    }
}

TCI_FN void tci_c_dialect_define(const tci_c_dialect_env *e, const char *text)
{
    tci_str own = {0};
    own.s = e->cd->d.s;
    tci_c_dialect_expand(e, text, &own);
    tci_str_add_n(&e->cd->out, tci_str_text(&own), own.n);
    tci_str_add(&e->cd->out, "\n");
}

TCI_FN const char *tci_c_dialect_list(tci_c_dialect *cd, int n, const char *format, int step,
                                      int modulo)
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

TCI_FN tc_dtype tci_c_dialect_sint(int bytes)
{
    return bytes == 1 ? TC_I8 : bytes == 2 ? TC_I16 : bytes == 4 ? TC_I32 : TC_I64;
}

TCI_FN tc_dtype tci_c_dialect_uint(int bytes)
{
    return bytes == 1 ? TC_U8 : bytes == 2 ? TC_U16 : bytes == 4 ? TC_U32 : TC_U64;
}

TCI_FN tc_dtype tci_c_dialect_mask_dtype(const tci_c_dialect *cd, int lanes)
{
    int bytes = cd->d.vector_bytes / lanes;
    return tci_c_dialect_sint(bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1);
}

TCI_FN const char *tci_c_dialect_suffix(tci_c_dialect *cd, tc_dtype t, int lanes)
{
    const char *name = tci_dtype_get(t)->name;
    return lanes == 1 ? name : tci_scratch_printf(cd->d.s, "%sx%d", name, lanes);
}

static const char *tci_c_dialect_type(tci_dialect *d, tc_dtype t, int lanes)
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    const char *name = tci_scratch_printf(d->s, "tc_%s", tci_c_dialect_suffix(cd, t, lanes));
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (!is_new) {
        return name;
    }
    tc_dtype element = t == TC_BOOL && lanes > 1 ? tci_c_dialect_mask_dtype(cd, lanes) : t;
    const tci_dtype_info *info = tci_dtype_get(element);
    const char *ctype = t == TC_BOOL && lanes == 1 ? "int" : info->ctype;
    tci_str_printf(&cd->out, "typedef %s %s", ctype, name);
    if (lanes > 1) {
        tci_str_printf(&cd->out, " __attribute__((vector_size(%d)))", info->bytes * lanes);
    }
    tci_str_add(&cd->out, ";\n");
    return name;
}

TCI_FN const char *tci_c_dialect_unaligned(tci_c_dialect *cd, tc_dtype t, int lanes)
{
    bool is_new;
    const char *type = tci_c_dialect_type(&cd->d, t, lanes);
    const char *name = tci_c_dialect_intern(cd, tci_scratch_printf(cd->d.s, "%s_u", type), &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef %s %s __attribute__((aligned(1), may_alias));\n", type,
                       name);
    }
    return name;
}

/* ---- helpers and expansions ---- */

TCI_FN void tci_c_dialect_define_helper(tci_c_dialect *cd, int id)
{
    const tci_helper *h = tci_helper_get(id);
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, h->name, &is_new);
    if (!is_new) {
        return;
    }
    if (h->needs != TCI_H_NONE) {
        tci_c_dialect_define_helper(cd, h->needs);
    }
    tci_c_dialect_soft(cd, "TC_FMA_F32");
    tci_c_dialect_soft(cd, "TC_FMA_F64");
    (void)name;
    tci_str_printf(&cd->out, "%s%s\n", cd->helper_word, h->text);
}

/* The helper on the lanes that m marks, 0 elsewhere. Kept out of line, so that its registers do not
 * weigh on the code that almost never calls it. */
static const char *tci_c_dialect_lanes_of(tci_c_dialect *cd, int id, tc_dtype t, int lanes)
{
    const tci_helper *h = tci_helper_get(id);
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_lanes_%s_%s", h->name,
                                          tci_c_dialect_suffix(cd, t, lanes));
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_c_dialect_env e = {cd, t, t, lanes, name, {NULL}};
        tci_c_dialect_define_helper(cd, id);
        e.piece[0] = h->name;
        tci_c_dialect_define(
            &e, "static __attribute__((noinline)) $T $n($T a, $B m) {\n    $T r = {0};\n"
                "    for (int i = 0; i < $L; i++) {\n        if (m[i]) {\n"
                "            r[i] = $1(a[i]);\n        }\n    }\n    return r;\n}");
    }
    return name;
}

/* LANE1: one test, and the helper where it says so. */
static void tci_c_dialect_define_lane1(const tci_c_dialect_env *outer, int id)
{
    const tci_helper *h = tci_helper_get(id);
    tci_c_dialect_env env = *outer;
    tci_c_dialect_env *e = &env;
    tci_c_dialect *cd = e->cd;
    e->piece[0] = h->name;
    if (e->lanes == 1) {
        tci_c_dialect_define_helper(cd, id);
        tci_c_dialect_define(e, "TC_I $T $n($T a, tc_bool m) { return m ? ($T)$1(a) : 0; }");
        return;
    }
    e->piece[0] = cd->lanes_of(cd, id, e->t, e->lanes);
    e->piece[1] = cd->any(cd, e->lanes);
    tci_c_dialect_define(e, "TC_I $T $n($T a, $B m) {\n    if (__builtin_expect($2(m), 0)) {\n"
                            "        return $1(a, m);\n    }\n    return ($T){0};\n}");
}

/* ---- expansions ---- */

/* SELECT(m, LANE1(.., m), fast): the whole belongs behind the test. */
static bool tci_c_dialect_is_patch(const tci_recipe *r, int i)
{
    const tci_step_inst *step = &r->insts[i];
    if (step->kind != TCI_RECIPE_PRIM || step->prim != TCI_P_SELECT) {
        return false;
    }
    const tci_step_inst *slow = &r->insts[step->args[1]];
    return slow->kind == TCI_RECIPE_PRIM && slow->prim == TCI_P_LANE1 &&
           slow->args[slow->n_args - 1] == step->args[0];
}

static bool tci_c_dialect_is_patched(const tci_recipe *r, int i)
{
    for (int k = i + 1; k < r->n; k++) {
        if (tci_c_dialect_is_patch(r, k) && r->insts[k].args[1] == i) {
            return true;
        }
    }
    return false;
}

/* "r" where the mask is nowhere true, with one test; the mask is the value of step `mask`. */
static const char *tci_c_dialect_patch(tci_c_dialect *cd, const tci_recipe *r, int i, int lanes)
{
    const tci_step_inst *step = &r->insts[i], *slow = &r->insts[step->args[1]];
    const tci_step_inst *mask = &r->insts[step->args[0]];
    tci_dialect *d = &cd->d;
    tc_dtype t = (tc_dtype)step->dtype;
    const char *test = tci_scratch_printf(d->s, "%s(v%d)", cd->any(cd, lanes), step->args[0]);
    if (mask->kind == TCI_RECIPE_PRIM && mask->prim == TCI_P_LT) {
        const char *any = tci_c_dialect_any_less(cd, (tc_dtype)r->insts[mask->args[0]].dtype,
                                                 lanes);
        test = tci_scratch_printf(d->s, "%s(v%d, v%d)", any, mask->args[0], mask->args[1]);
    }
    const char *select = d->prim(d, TCI_P_SELECT, t, t, lanes, 0);
    return tci_scratch_printf(d->s,
                              "v%d;\n    if (__builtin_expect(%s, 0)) {\n"
                              "        v%d = %s(v%d, %s(v%d, v%d), v%d);\n    }\n",
                              step->args[2], test, i, select, step->args[0],
                              cd->lanes_of(cd, slow->imm, t, lanes), slow->args[0], step->args[0],
                              step->args[2]);
}

/* The expression of a step that is a prim. */
static const char *tci_c_dialect_step(tci_c_dialect *cd, const tci_recipe *r, int i, int lanes)
{
    const tci_step_inst *step = &r->insts[i], *mask = &r->insts[step->args[0]];
    tci_dialect *d = &cd->d;
    tc_dtype t = (tc_dtype)step->dtype;
    tc_dtype operand = (tc_dtype)r->insts[step->args[step->prim == TCI_P_SELECT]].dtype;
    tci_str text = {0};
    text.s = d->s;
    if (step->prim == TCI_P_SELECT && mask->kind == TCI_RECIPE_PRIM) {
        const char *pick = tci_c_dialect_pick(cd, (tci_prim)mask->prim,
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

/* Bytes of the widest element of an expansion. */
static int tci_c_dialect_widest(const tci_recipe *r)
{
    int most = 0;
    for (int i = 0; i < r->n; i++) {
        most = TCI_MAX(most, tci_dtype_get((tc_dtype)r->insts[i].dtype)->bytes);
    }
    return most;
}

/* Where a value is wider than a vector of the machine (f32 functions that go through f64) compilers
 * would spill all of them, and masks would be made and unmade: the whole is done in parts. */
static void tci_c_dialect_define_recipe(const tci_c_dialect_env *e, tci_prim p)
{
    tci_c_dialect *cd = e->cd;
    tci_dialect *d = &cd->d;
    const tci_recipe *r = tci_math_recipe(p, e->t);
    int native = d->vector_bytes / tci_c_dialect_widest(r);
    if (e->lanes > native && native > 1 && cd->any == tci_c_dialect_any) {
        tci_c_dialect_env parts = *e;
        tci_c_dialect_define_parts(&parts, p, native);
        return;
    }
    tci_str text = {0};
    text.s = d->s;
    tci_str_printf(&text, "TC_I $T $n(%s) {\n",
                   tci_prim_get(p)->arity == 2 ? "$T a, $T b" : "$T a");
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *step = &r->insts[i];
        tc_dtype t = (tc_dtype)step->dtype;
        if (e->lanes > 1 && tci_c_dialect_is_patched(r, i)) {
            continue;
        }
        tci_str_printf(&text, "    %s v%d = ", d->type(d, t, e->lanes), i);
        if (step->kind == TCI_RECIPE_ARG) {
            tci_str_printf(&text, "%c;\n", 'a' + step->imm);
        } else if (step->kind == TCI_RECIPE_CONST) {
            tci_str_printf(&text, "%s(%s);\n", d->mem(d, TCI_MEM_SPLAT, t, t, e->lanes),
                           d->constant(d, t, step->value));
        } else if (e->lanes > 1 && tci_c_dialect_is_patch(r, i)) {
            tci_str_add(&text, tci_c_dialect_patch(cd, r, i, e->lanes));
        } else {
            tci_str_add(&text, tci_c_dialect_step(cd, r, i, e->lanes));
        }
    }
    tci_str_printf(&text, "    return v%d;\n}", r->n - 1);
    tci_c_dialect_define(e, tci_str_text(&text));
}

/* ---- the dialect ---- */

static void tci_c_dialect_define_prim(const tci_c_dialect_env *e, tci_prim p, int imm)
{
    if (tci_prim_is_math(p)) {
        tci_c_dialect_define_recipe(e, p);
    } else if (p == TCI_P_LANE1) {
        tci_c_dialect_define_lane1(e, imm);
    } else {
        tci_c_dialect_define_base(e, p);
    }
}

static const char *tci_c_dialect_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to,
                                      int lanes, int imm)
{
    tci_c_dialect *cd = d->state;
    const tci_prim_info *info = tci_prim_get(p);
    const char *type = tci_c_dialect_suffix(cd, t, lanes);
    const char *name;
    bool is_new;
    if (p == TCI_P_LANE1) {
        name = tci_scratch_printf(d->s, "tc_lane1_%s_%s", tci_helper_get(imm)->name, type);
    } else if (info->result == 'O') {
        name = tci_scratch_printf(d->s, "tc_%s_%s_%s", info->name, type, tci_dtype_get(to)->name);
    } else {
        name = tci_scratch_printf(d->s, "tc_%s_%s", info->name, type);
    }
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_c_dialect_env e = {cd, t, info->result == 'O' ? to : t, lanes, name, {NULL}};
        tci_c_dialect_define_prim(&e, p, imm);
    }
    return name;
}

/* Hex floats with an integer mantissa: no decimal point, so the host's locale cannot change the
 * text. */
static const char *tci_c_dialect_constant_float(tci_dialect *d, tc_dtype t, double x)
{
    const char *f = t == TC_F32 ? "f" : "";
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const char *sign = bits >> 63 ? "-" : "";
    int exponent = (int)(bits >> 52) & 2047;
    uint64_t mantissa = bits & 0xfffffffffffffu;
    if (exponent == 2047) { /* a quotient by zero would be computed at each call */
        tci_c_dialect_soft(d->state, "TC_INF");
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

static const char *tci_c_dialect_constant(tci_dialect *d, tc_dtype t, tci_value v)
{
    switch (t) {
    case TC_BOOL: return v.i ? "1" : "0";
    case TC_U32: return tci_scratch_printf(d->s, "%uu", (unsigned)v.u);
    case TC_U64: return tci_scratch_printf(d->s, "%lluull", (unsigned long long)v.u);
    case TC_I64:
        return v.i == INT64_MIN ? "(-9223372036854775807ll - 1)"
                                : tci_scratch_printf(d->s, "(%lldll)", (long long)v.i);
    default: break;
    }
    if (tci_dtype_is_float(t)) {
        return tci_c_dialect_constant_float(d, t, t == TC_F64 ? v.f : (double)(float)v.f);
    }
    return v.i == INT32_MIN ? "(-2147483647 - 1)" : tci_scratch_printf(d->s, "(%d)", (int)v.i);
}

/* TC_GCC and TC_HAS(x): this compiler has the x86 builtins with gcc's, with clang's names.
 * TC_CONVERT: it has __builtin_convertvector. TC_UNROLL(n): the compiler unrolls the loop after it
 * n times, which takes less of its time than as many copies of the text. */
static void tci_c_dialect_prelude(tci_dialect *d, tci_str *out)
{
    tci_c_dialect *cd = d->state;
    /* of instructions on vectors of that width */
    const char *has = d->vector_bytes == 16 ? "(defined(__FMA__) || defined(__SSE4_1__))"
                                            : "defined(__FMA__)";
    tci_str_add(out, d->words->prelude);
    tci_str_printf(out,
                   "#if defined(__clang__) && (%s || !defined(__x86_64__))\n"
                   "#define TC_HAS(x) __has_builtin(x)\n#else\n#define TC_HAS(x) 0\n#endif\n"
                   "#if defined(__GNUC__) && !defined(__clang__) && !defined(__TINYC__) && %s\n"
                   "#define TC_GCC 1\n#else\n#define TC_GCC 0\n#endif\n",
                   has, has);
    tci_str_add(
        out,
        "#if defined(__clang__)\n#define TC_CONVERT 1\n"
        "#elif defined(__GNUC__) && __GNUC__ >= 9\n#define TC_CONVERT 1\n"
        "#else\n#define TC_CONVERT 0\n#endif\n"
        "#define TC_PRAGMA(x) _Pragma(#x)\n"
        "#if defined(__clang__)\n#define TC_UNROLL(n) TC_PRAGMA(clang loop unroll_count(n))\n"
        "#elif defined(__GNUC__) && __GNUC__ >= 8\n#define TC_UNROLL(n) TC_PRAGMA(GCC unroll n)\n"
        "#else\n#define TC_UNROLL(n)\n#endif\n"
        "#if defined(__TINYC__)\n#define TC_I static inline\n#else\n"
        "#define TC_I static inline __attribute__((always_inline))\n#endif\n");
    tci_str_add_n(out, tci_str_text(&cd->out), cd->out.n);
}

#define TCI_C_DIALECT_HEAD \
    "void $n(void *const *bufs, const tc_i64 *lits, tc_i64 *fault, tc_i64 task_begin, "            \
    "tc_i64 task_end)\n{\n"
static const tc_dialect tci_c_dialect_words = {
    .prelude = "",
    .space = "",
    .operand = "bufs[#]",
    .head = "__attribute__((visibility(\"default\")))\n" TCI_C_DIALECT_HEAD};
static const tc_dialect tci_c_dialect_hidden_words = {
    .prelude = "", .space = "", .operand = "bufs[#]", .head = "static " TCI_C_DIALECT_HEAD};
static const tc_dialect tci_c_dialect_inner_words = {
    .prelude = "", .space = "", .operand = "bufs[#]", .head = "TC_I " TCI_C_DIALECT_HEAD};
#undef TCI_C_DIALECT_HEAD

TCI_FN void tci_dialect_hide(tci_dialect *d)
{
    d->words = &tci_c_dialect_hidden_words;
}

TCI_FN void tci_dialect_number(tci_str *out, const char *text, int number)
{
    for (; *text; text++) {
        if (*text == '#') {
            tci_str_printf(out, "%d", number);
        } else {
            tci_str_add_n(out, text, 1);
        }
    }
}

static void tci_c_dialect_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                               int n_words)
{
    const tc_dialect *words = l->is_inner    ? &tci_c_dialect_inner_words
                              : l->is_member ? &tci_c_dialect_hidden_words
                                             : d->words;
    (void)d->type(d, TC_I64, 1);
    for (const char *at = words->head; *at; at++) {
        const char *end = at[0] == '$' && at[1] == '(' ? strstr(at, "$)") : NULL;
        if (end) {
            const char *each = tci_scratch_printf(d->s, "%.*s", (int)(end - at - 2), at + 2);
            for (int i = 0; i < l->n_operands; i++) {
                tci_dialect_number(out, each, i);
            }
            at = end + 1;
        } else if (at[0] == '$' && (at[1] == 'n' || at[1] == 'w')) {
            tci_str_add(out, *++at == 'n' ? symbol : tci_scratch_printf(d->s, "%d", n_words));
        } else {
            tci_str_add_n(out, at, 1);
        }
    }
}

static void tci_c_dialect_tail(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l)
{
    (void)d;
    (void)symbol;
    (void)l;
    tci_str_add(out, "}\n");
}

TCI_FN tci_dialect *tci_dialect_c(tci_scratch *s, int vector_bytes)
{
    tci_c_dialect *cd = TCI_NEW(s, tci_c_dialect);
    cd->d.words = &tci_c_dialect_words;
    cd->d.local_word = "";
    cd->d.table_word = "static const ";
    cd->d.head = tci_c_dialect_head;
    cd->d.tail = tci_c_dialect_tail;
    cd->d.vector_bytes = vector_bytes;
    cd->d.s = s;
    cd->d.state = cd;
    cd->d.prim = tci_c_dialect_prim;
    cd->d.mem = tci_c_dialect_mem;
    cd->d.type = tci_c_dialect_type;
    cd->d.constant = tci_c_dialect_constant;
    cd->d.prelude = tci_c_dialect_prelude;
    cd->any = tci_c_dialect_any;
    cd->lanes_of = tci_c_dialect_lanes_of;
    cd->helper_word = "";
    cd->out.s = s;
    return &cd->d;
}

static bool tci_c_dialect_in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Length of the word or number at `at`, of n bytes, in a language whose long has 64 bits: 0 for
 * `long` before another `long`; one less for a number with the suffix ll. */
static size_t tci_c_dialect_kept(const char *at, size_t n)
{
    if (!strncmp(at, "long long", 9)) {
        return 0;
    }
    bool number = at[0] >= '0' && at[0] <= '9';
    bool wide = n > 2 && (!strncmp(at + n - 2, "ll", 2) || !strncmp(at + n - 2, "LL", 2));
    return number && wide ? n - 1 : n;
}

TCI_FN void tci_dialect_finish(const tci_dialect *d, tci_str *source)
{
    size_t to = 0, from = 0;
    if (!d->words->long_has_64_bits || !source->n) {
        return;
    }
    while (from < source->n) {
        const char *at = source->text + from;
        size_t n = 0;
        while (tci_c_dialect_in_word(at[n])) {
            n++;
        }
        size_t kept = n ? tci_c_dialect_kept(at, n) : 1;
        memmove(source->text + to, at, kept);
        to += kept;
        from += n ? n : 1;
    }
    source->n = to;
    source->text[to] = 0;
}

TCI_FN tci_dialect *tci_dialect_make(tci_scratch *s, const tc_dialect *words, int vector_bytes)
{
    if (words && words->make) {
        return words->make(s, vector_bytes);
    }
    tci_dialect *d = tci_dialect_c(s, words ? 0 : vector_bytes);
    d->words = words ? words : &tci_c_dialect_words;
    return d;
}
