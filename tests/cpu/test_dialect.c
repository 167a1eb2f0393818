/* Judges the C dialect: every prim on every dtype, and every memory row, against tci_prim_eval and
 * the storage functions, bit for bit (any NaN equals any NaN), for gcc, clang and tcc, whichever
 * are here. One source file per (compiler, width) holds a small function per case; guard pages
 * catch an access beyond what a memory row may touch. */
#include "inside.h"

#include <float.h>
#include <sys/mman.h>

#include "../tc_test.h"

enum { N = 1024, MAX_CASES = 6000, GUARD = 4096, CORNERS = 61 };

typedef enum case_kind { CASE_PRIM, CASE_MEM } case_kind;
typedef struct test_case {
    case_kind kind;
    tci_prim prim;
    tci_mem mem;
    tc_dtype t, to; /* memory rows: compute, storage */
    int lanes, imm, n_args;
} test_case;
typedef void (*prim_fn)(const void *a, const void *b, const void *c, void *out, long n);
typedef void (*load_fn)(const void *p, void *out, const void *mask, long stride, long n);
typedef void (*store_fn)(void *p, const void *value, const void *mask, long stride, long n);

static test_case cases[MAX_CASES];
static int n_cases;
static const tc_dtype compute_dtypes[] = {TC_BOOL, TC_U8,  TC_U16, TC_U32, TC_U64, TC_I8,
                                          TC_I16,  TC_I32, TC_I64, TC_F32, TC_F64};
static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* ---- inputs ---- */

static double corner_float(int i)
{
    static const double table[] = {0.0,
                                   -0.0,
                                   1.0,
                                   -1.0,
                                   0.5,
                                   -0.5,
                                   1.5,
                                   2.5,
                                   -2.5,
                                   3.0,
                                   INFINITY,
                                   -INFINITY,
                                   NAN,
                                   127.5,
                                   128.0,
                                   -128.5,
                                   -129.0,
                                   255.5,
                                   256.0,
                                   32767.5,
                                   32768.0,
                                   -32769.0,
                                   65535.5,
                                   65536.0,
                                   65504.0,
                                   65519.0,
                                   65520.0,
                                   8388607.5,
                                   8388609.0,
                                   2147483520.0,
                                   2147483648.0,
                                   -2147483648.0,
                                   -2147483904.0,
                                   4294967040.0,
                                   4294967296.0,
                                   0x1p52,
                                   -0x1p52 - 1,
                                   0x1p62,
                                   0x1p63,
                                   -0x1p63,
                                   -0x1.8p63,
                                   0x1p64,
                                   0x1.fffffep127,
                                   0x1p-14,
                                   0x1.ffcp-15,
                                   0x1p-24,
                                   0x1p-25,
                                   0x1.8p-25,
                                   0x1p-126,
                                   0x1p-149,
                                   0x1p-133,
                                   0x1p-1022,
                                   0x1p-1074,
                                   1e300,
                                   -1e300,
                                   0x1.0000000000001p0,
                                   0x1.fffffffffffffp-1,
                                   0x1.000002p0,
                                   0.49999997,
                                   1.0039062,
                                   1.01171875};
    return table[i % TCI_COUNT(table)];
}

static int64_t corner_int(int i)
{
    static const int64_t table[] = {0,         1,          -1,
                                    2,         -2,         3,
                                    7,         8,          9,
                                    15,        16,         17,
                                    31,        32,         33,
                                    63,        64,         65,
                                    127,       128,        -128,
                                    -129,      255,        256,
                                    32767,     32768,      -32768,
                                    65535,     65536,      INT32_MAX,
                                    INT32_MIN, 4294967295, 4294967296,
                                    INT64_MAX, INT64_MIN,  INT64_MAX - 511,
                                    16777217,  -16777219,  9007199254740993};
    return table[i % TCI_COUNT(table)];
}

/* Element i of operand k as storage bytes of a compute dtype. Signalling NaNs are made quiet. */
static void make_input(tc_dtype t, int k, int i, void *out)
{
    tci_value v = {0};
    uint64_t r = next_random();
    int at = k == 0 ? i : k == 1 ? i / 61 * 5 + i : (int)(r >> 40);
    bool corner = i < 700 || (r & 3) == 0;
    if (t == TC_BOOL) {
        v.i = (int64_t)(r >> 33 & 1);
    } else if (!tci_dtype_is_float(t)) {
        v.i = corner ? corner_int(at) : (int64_t)next_random() >> (r & 63);
        v = tci_value_cast(v, TC_I64, t);
    } else if (corner) {
        v.f = corner_float(at);
    } else if (r & 4) {
        v.f = ((double)(int64_t)next_random()) * ldexp(1.0, (int)(r >> 8 & 127) - 100);
    } else {
        uint64_t bits = next_random();
        v = tci_value_load(t, &bits);
        if (v.f != v.f) {
            v.f = NAN;
        }
    }
    tci_value_store(t, out, v);
}

static bool is_rounding(const test_case *c)
{
    return c->prim == TCI_P_ROUND16 || c->prim == TCI_P_ROUNDB16;
}

/* Keeps inputs where a prim or helper is defined: TOINT in range, the slow trigonometry far out. */
static void tame_input(const test_case *c, tc_dtype t, void *out)
{
    tci_value v = tci_value_load(t, out);
    bool slow = c->imm == TCI_H_SIN_SLOW_F32 || c->imm == TCI_H_COS_SLOW_F32 ||
                c->imm == TCI_H_TAN_SLOW_F32;
    if (c->prim == TCI_P_TOINT) {
        v.f = fabs(v.f) < (t == TC_F32 ? 0x1p31 : 0x1p63) ? v.f : 12.75;
        tci_value_store(t, out, v);
    } else if (c->prim == TCI_P_LANE1 && slow && t == TC_F32) {
        v.f = fabs(v.f) >= 0x1p17 && fabs(v.f) <= FLT_MAX ? v.f : 0x1.8p25;
        tci_value_store(t, out, v);
    } else if (is_rounding(c) && v.f != v.f) { /* all of its payload is in bits that are cut */
        uint32_t bits = 0x7f800001u + (uint32_t)(next_random() & 0x80000ffeu);
        memcpy(out, &bits, sizeof(bits));
    }
}

/* Whether out is a number, or a NaN, that the 16-bit format holds: whoever stores it may cut. */
static bool holds(const test_case *c, const void *out)
{
    uint32_t bits;
    memcpy(&bits, out, sizeof(bits));
    return !is_rounding(c) || !(bits & (c->prim == TCI_P_ROUND16 ? 0x1fffu : 0xffffu));
}

/* ---- the source file ---- */

static void add_case(test_case c)
{
    CHECK(n_cases < MAX_CASES);
    if (n_cases < MAX_CASES) {
        cases[n_cases++] = c;
    }
}

static bool prim_takes(tci_prim p, tc_dtype t)
{
    bool is_float = tci_dtype_is_float(t);
    switch (p) {
    case TCI_P_AND:
    case TCI_P_OR:
    case TCI_P_XOR:
    case TCI_P_NOT:
    case TCI_P_SHL:
    case TCI_P_SHR:
    case TCI_P_MULHI:
    case TCI_P_POWI:
    case TCI_P_GCD: return !is_float;
    case TCI_P_SQRT:
    case TCI_P_TOINT: return is_float;
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16: return t == TC_F32;
    case TCI_P_LANE1: return false; /* added apart */
    default: return !tci_prim_is_math(p) || is_float;
    }
}

static void add_prims(tc_dtype t, int lanes)
{
    for (int p = 0; p < TCI_P_COUNT; p++) {
        test_case c = {
            CASE_PRIM, (tci_prim)p, TCI_MEM_LOAD, t, t, lanes, 0, tci_prim_get((tci_prim)p)->arity};
        if (!prim_takes(c.prim, t)) {
            continue;
        }
        if (p == TCI_P_CAST) {
            for (int i = 0; i < TCI_COUNT(compute_dtypes); i++) {
                c.to = compute_dtypes[i];
                add_case(c);
            }
        } else if (p == TCI_P_BITS || p == TCI_P_TOINT) {
            int bytes = tci_dtype_get(t)->bytes;
            c.to = tci_dtype_is_float(t)        ? tci_c_dialect_sint(bytes)
                   : t == TC_I32 || t == TC_U32 ? TC_F32
                                                : TC_F64;
            if (t != TC_BOOL && bytes >= 4) {
                add_case(c);
            }
        } else {
            c.to = tci_prim_get(c.prim)->result == 'B' ? TC_BOOL : t;
            add_case(c);
        }
    }
    for (int id = 1; id < tci_helper_count(); id++) {
        const tci_helper *h = tci_helper_get(id);
        if (h->name && (h->f32 || h->f64) && h->dtype == t) {
            add_case((test_case){CASE_PRIM, TCI_P_LANE1, TCI_MEM_LOAD, t, t, lanes, id, 2});
        }
    }
}

static void add_memory(tc_dtype compute, tc_dtype storage, int lanes)
{
    for (int m = 0; m <= TCI_MEM_WEAVE_HIGH; m++) {
        /* in this dialect STORE_ONE; and tests/ops/test_scatter.c */
        if (m == TCI_MEM_STORE_LANE || m == TCI_MEM_INDEX) {
            continue;
        }
        bool masked = m == TCI_MEM_FIRST_N;
        bool counts = m == TCI_MEM_IOTA;
        if ((masked && compute != TC_BOOL) || (counts && compute == TC_BOOL) ||
            (m > TCI_MEM_STORE_ONE && compute != storage)) {
            continue;
        }
        add_case((test_case){CASE_MEM, TCI_P_ADD, (tci_mem)m, compute, storage, lanes, 0, 0});
    }
}

static const char *ctype(tc_dtype t)
{
    return tci_dtype_get(t)->ctype;
}

static void print_prim(tci_dialect *d, const test_case *c, int index, tci_str *out)
{
    static const char letters[] = "abc";
    tci_str_printf(
        out, "void case%d(const void *a, const void *b, const void *c, void *out, long n) {\n",
        index);
    tci_str_printf(out, "    for (long i = 0; i < n; i += %d) {\n        ", c->lanes);
    const char *name = d->prim(d, c->prim, c->t, c->to, c->lanes, c->imm);
    tci_str_printf(out, "%s((%s *)out + i, %s(", d->mem(d, TCI_MEM_STORE, c->to, c->to, c->lanes),
                   ctype(c->to), name);
    for (int k = 0; k < c->n_args; k++) {
        bool mask = (c->prim == TCI_P_SELECT && k == 0) ||
                    (c->prim == TCI_P_LANE1 && k == c->n_args - 1);
        tc_dtype t = mask ? TC_BOOL : c->t;
        tci_str_printf(out, "%s%s((const %s *)%c + i)", k ? ", " : "",
                       d->mem(d, TCI_MEM_LOAD, t, t, c->lanes), ctype(t), letters[k]);
    }
    tci_str_add(out, "));\n    }\n}\n");
}

static void print_memory(tci_dialect *d, const test_case *c, int index, tci_str *out)
{
    tc_dtype t = c->t;
    const char *name = d->mem(d, c->mem, t, c->to, c->lanes);
    const char *get = d->mem(d, TCI_MEM_LOAD, t, t, c->lanes);
    const char *put = d->mem(d, TCI_MEM_STORE, t, t, c->lanes);
    const char *get1 = d->mem(d, TCI_MEM_LOAD, t, t, 1);
    const char *put1 = d->mem(d, TCI_MEM_STORE, t, t, 1);
    const char *mask = d->mem(d, TCI_MEM_LOAD, TC_BOOL, TC_BOOL, c->lanes);
    const char *type = ctype(t);
    tci_str p = {0};
    p.s = d->s;
    tci_str_printf(&p, "(const %s *)p", ctype(c->to));
    bool store = c->mem >= TCI_MEM_STORE && c->mem <= TCI_MEM_STORE_ONE;
    tci_str_printf(out,
                   store ? "void case%d(void *p, const void *value, const void *mask, long stride, "
                           "long n) {\n    "
                         : "void case%d(const void *p, void *out, const void *mask, long stride, "
                           "long n) {\n    ",
                   index);
    if (store) {
        const char *one = c->mem == TCI_MEM_STORE_ONE ? get1 : get;
        tci_str_printf(out, "%s((%s *)p", name, ctype(c->to));
        tci_str_add(out, c->mem == TCI_MEM_STORE_STRIDED || c->mem == TCI_MEM_STORE_STRIDED_N
                             ? ", stride"
                             : "");
        tci_str_printf(out, ", %s((const %s *)value)", one, type);
        tci_str_add(out, c->mem == TCI_MEM_STORE_N || c->mem == TCI_MEM_STORE_STRIDED_N
                             ? ", n);\n}\n"
                             : ");\n}\n");
        return;
    }
    bool one = c->mem == TCI_MEM_LOAD_ONE || c->mem == TCI_MEM_LANE;
    tci_str_printf(out, "%s((%s *)out, %s(", one ? put1 : put, type, name);
    switch (c->mem) {
    case TCI_MEM_LOAD_MASK:
        tci_str_printf(out, "%s, %s((const unsigned char *)mask)", p.text, mask);
        break;
    case TCI_MEM_LOAD_N: tci_str_printf(out, "%s, n", p.text); break;
    case TCI_MEM_LOAD_STRIDED: tci_str_printf(out, "%s, stride", p.text); break;
    case TCI_MEM_LOAD_STRIDED_N: tci_str_printf(out, "%s, stride, n", p.text); break;
    case TCI_MEM_LOAD_AT:
        tci_str_printf(out, "%s, %s(0) * stride", p.text,
                       d->mem(d, TCI_MEM_IOTA, TC_I64, TC_I64, c->lanes));
        break;
    case TCI_MEM_SPLAT:
    case TCI_MEM_IOTA: tci_str_printf(out, "%s(%s)", get1, p.text); break;
    case TCI_MEM_FIRST_N: tci_str_add(out, "n"); break;
    case TCI_MEM_LANE: tci_str_printf(out, "%s(%s), (int)n", get, p.text); break;
    case TCI_MEM_SET_LANE:
        tci_str_printf(out, "%s(%s), (int)n, %s(%s + %d)", get, p.text, get1, p.text, c->lanes - 1);
        break;
    case TCI_MEM_HIGH_HALF: tci_str_printf(out, "%s(%s), (int)n", get, p.text); break;
    case TCI_MEM_BELOW:
    case TCI_MEM_SWAP_LOW:
    case TCI_MEM_SWAP_HIGH:
        tci_str_printf(out, "%s(%s), %s(%s + %d), (int)n", get, p.text, get, p.text, c->lanes);
        break;
    case TCI_MEM_WEAVE_LOW:
    case TCI_MEM_WEAVE_HIGH:
        tci_str_printf(out, "%s(%s), %s(%s + %d)", get, p.text, get, p.text, c->lanes);
        break;
    default: tci_str_add(out, p.text); break;
    }
    tci_str_add(out, "));\n}\n");
}

/* Corner value i of a dtype, as its constants are written. */
static tci_value corner_value(tc_dtype t, int i)
{
    tci_value v = {0};
    if (tci_dtype_is_float(t)) {
        v.f = corner_float(i);
        return tci_value_cast(v, TC_F64, t);
    }
    v.i = corner_int(i);
    return tci_value_cast(v, TC_I64, t);
}

static void print_constants(tci_dialect *d, tci_str *out)
{
    for (int k = 0; k < TCI_COUNT(compute_dtypes); k++) {
        tc_dtype t = compute_dtypes[k];
        tci_str_printf(out, "%s constants_%s[%d] = {", ctype(t), tci_dtype_get(t)->name, CORNERS);
        for (int i = 0; i < CORNERS; i++) {
            tci_str_printf(out, "%s%s", i ? ", " : "", d->constant(d, t, corner_value(t, i)));
        }
        tci_str_add(out, "};\n");
    }
}

static void print_file(tci_scratch *s, int vector_bytes, tci_str *out)
{
    tci_dialect *d = tci_dialect_c(s, vector_bytes);
    tci_str body = {0};
    body.s = s;
    tci_str_printf(&body, "void finish(const void *p) {\n    %s(p);\n    %s();\n}\n",
                   d->mem(d, TCI_MEM_PREFETCH, TC_F32, TC_F32, 1),
                   d->mem(d, TCI_MEM_FENCE, TC_F32, TC_F32, 1));
    print_constants(d, &body);
    for (int i = 0; i < n_cases; i++) {
        if (cases[i].kind == CASE_PRIM) {
            print_prim(d, &cases[i], i, &body);
        } else {
            print_memory(d, &cases[i], i, &body);
        }
    }
    d->prelude(d, out);
    tci_str_add(out, tci_str_text(&body));
}

/* ---- judging ---- */

static bool same_value(tc_dtype t, tci_value a, tci_value b)
{
    return a.u == b.u || (tci_dtype_is_float(t) && a.f != a.f && b.f != b.f);
}

static int n_wrong;

static void report(const test_case *c, const char *what, int at, tci_value got, tci_value want)
{
    if (n_wrong++ < 12) {
        fprintf(stderr, "  %s %s -> %s x%d at %d: got %a (%lld), want %a (%lld)\n", what,
                tci_dtype_get(c->t)->name, tci_dtype_get(c->to)->name, c->lanes, at, got.f,
                (long long)got.i, want.f, (long long)want.i);
    }
}

static void judge_prim(const test_case *c, prim_fn fn)
{
    static char operands[3][N * 8];
    static char out[N * 8];
    tc_dtype types[3];
    for (int k = 0; k < c->n_args; k++) {
        bool mask = (c->prim == TCI_P_SELECT && k == 0) ||
                    (c->prim == TCI_P_LANE1 && k == c->n_args - 1);
        types[k] = mask ? TC_BOOL : c->t;
        int bytes = tci_dtype_get(types[k])->bytes;
        for (int i = 0; i < N; i++) {
            make_input(types[k], k, i, operands[k] + i * bytes);
            tame_input(c, types[k], operands[k] + i * bytes);
        }
    }
    int out_bytes = tci_dtype_get(c->to)->bytes;
    fn(operands[0], operands[1], operands[2], out, N);
    for (int i = 0; i < N; i++) {
        tci_value args[3];
        for (int k = 0; k < c->n_args; k++) {
            args[k] = tci_value_load(types[k], operands[k] + i * tci_dtype_get(types[k])->bytes);
        }
        tci_value want = tci_prim_eval(c->prim, c->t, c->to, c->imm, args);
        tci_value got = tci_value_load(c->to, out + i * out_bytes);
        if (!same_value(c->to, got, want) || !holds(c, out + i * out_bytes)) {
            report(c, c->imm ? tci_helper_get(c->imm)->name : tci_prim_get(c->prim)->name, i, got,
                   want);
            fprintf(stderr, "    of %a (%lld), %a (%lld)\n", args[0].f, (long long)args[0].i,
                    c->n_args > 1 ? args[1].f : 0, c->n_args > 1 ? (long long)args[1].i : 0);
            return;
        }
    }
}

/* Two pages that may be touched between two that may not. */
static char *guarded(void)
{
    static char *at;
    if (!at) {
        at = mmap(NULL, 4 * GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(at, GUARD, PROT_NONE);
        mprotect(at + 3 * GUARD, GUARD, PROT_NONE);
        at += GUARD;
    }
    return at;
}

static void fill_storage(tc_dtype storage, char *p, int n)
{
    tc_dtype compute = tci_dtype_get(storage)->compute;
    for (int i = 0; i < n; i++) {
        uint64_t bits;
        make_input((tc_dtype)compute, 0, (int)(next_random() >> 20 & 1023), &bits);
        tci_value_store(storage, p + i * tci_dtype_get(storage)->bytes,
                        tci_value_load((tc_dtype)compute, &bits));
    }
}

/* Loads: elements end where the page ends (stride > 0) or start where it starts (stride < 0). */
static void judge_load(const test_case *c, load_fn fn, long stride, int n, uint64_t active)
{
    int size = tci_dtype_get(c->to)->bytes;
    int lanes = c->mem == TCI_MEM_LOAD_ONE ? 1 : c->lanes;
    int last = 0;
    for (int i = 0; i < lanes; i++) {
        last = active >> i & 1 ? i : last;
    }
    char *begin = guarded();
    int span = (int)(last * labs(stride) + 1) * size;
    if (span > 2 * GUARD) {
        return;
    }
    fill_storage(c->to, begin, 2 * GUARD / size);
    char *p = stride > 0 ? begin + 2 * GUARD - span : begin + last * labs(stride) * size;
    unsigned char mask[64];
    char out[64 * 8];
    for (int i = 0; i < lanes; i++) {
        mask[i] = active >> i & 1;
    }
    if (!active) {
        p = begin + 2 * GUARD;
    }
    fn(p, out, mask, stride, n);
    for (int i = 0; i < lanes; i++) {
        tci_value want = {0};
        if (mask[i]) {
            want = tci_value_load(c->to, p + i * stride * size);
        }
        tci_value got = tci_value_load(c->t, out + i * tci_dtype_get(c->t)->bytes);
        if (!same_value(c->t, got, want)) {
            report(c, "load row", (int)c->mem * 100 + i, got, want);
            return;
        }
    }
}

static void judge_store(const test_case *c, store_fn fn, long stride, int n)
{
    int size = tci_dtype_get(c->to)->bytes;
    int lanes = c->mem == TCI_MEM_STORE_ONE ? 1 : c->lanes;
    static char before[2 * GUARD], want[2 * GUARD];
    char *begin = guarded();
    char value[64 * 8];
    int span = (int)((n - 1) * labs(stride) + 1) * size;
    if (span > 2 * GUARD) {
        return;
    }
    for (int i = 0; i < 2 * GUARD; i++) {
        before[i] = (char)(next_random() >> 30);
    }
    memcpy(begin, before, sizeof before);
    memcpy(want, before, sizeof before);
    fill_storage(c->t, value, lanes);
    int vector = lanes * size;
    long offset = stride > 0 ? 2 * GUARD - span : (n - 1) * labs(stride) * size;
    offset -= c->mem == TCI_MEM_STORE_STREAM ? offset % vector : 0;
    fn(begin + offset, value, NULL, stride, n);
    for (int i = 0; i < n; i++) {
        tci_value v = tci_value_load(c->t, value + i * tci_dtype_get(c->t)->bytes);
        tci_value_store(c->to, want + offset + i * stride * size, v);
    }
    for (int i = 0; i < 2 * GUARD / size; i++) {
        tci_value got = tci_value_load(c->to, begin + i * size);
        tci_value expected = tci_value_load(c->to, want + i * size);
        bool touched = memcmp(begin + i * size, before + i * size, (size_t)size) != 0;
        bool may = memcmp(want + i * size, before + i * size, (size_t)size) != 0;
        if ((touched && !may) || (may && !same_value(c->to, got, expected))) {
            report(c, "store row", (int)c->mem * 1000 + i, got, expected);
            return;
        }
    }
}

static void judge_lane_row(const test_case *c, load_fn fn, int n)
{
    int size = tci_dtype_get(c->t)->bytes;
    char in[2 * 64 * 8];
    char out[64 * 8];
    fill_storage(c->t, in, 2 * c->lanes); /* a second vector for the rows that take two */
    if (c->mem == TCI_MEM_IOTA) {
        tci_value first = {0};
        if (tci_dtype_is_float(c->t)) {
            first.f = 5;
        } else {
            first.i = 5;
        }
        tci_value_store(c->t, in, first);
    }
    fn(in, out, NULL, 1, n);
    int checked = c->mem == TCI_MEM_LANE ? 1 : c->mem == TCI_MEM_HIGH_HALF ? n : c->lanes;
    for (int i = 0; i < checked; i++) {
        int from = c->mem == TCI_MEM_SPLAT ? 0 : c->mem == TCI_MEM_LANE ? n : i;
        from = c->mem == TCI_MEM_SET_LANE && i == n ? c->lanes - 1 : from;
        from = c->mem == TCI_MEM_HIGH_HALF && c->lanes > 1 ? i + n : from;
        if (c->mem == TCI_MEM_BELOW) {
            from = i & n ? (i | (n - 1)) ^ n : c->lanes + i;
        } else if (c->mem == TCI_MEM_SWAP_LOW) {
            from = i & n ? c->lanes + i - n : i;
        } else if (c->mem == TCI_MEM_SWAP_HIGH) {
            from = i & n || c->lanes == 1 ? c->lanes + i : i + n;
        } else if (c->mem == TCI_MEM_WEAVE_LOW || c->mem == TCI_MEM_WEAVE_HIGH) {
            int at = i + (c->mem == TCI_MEM_WEAVE_HIGH ? c->lanes : 0); /* of both together */
            from = at % 2 * c->lanes + at / 2;
        }
        tci_value want = tci_value_load(c->t, in + from * size);
        if (c->mem == TCI_MEM_FIRST_N) {
            want.i = i < n;
        } else if (c->mem == TCI_MEM_IOTA) {
            want.i = tci_dtype_is_float(c->t) ? 0 : 5 + i;
            want.f = tci_dtype_is_float(c->t) ? 5.0 + i : want.f;
        }
        tci_value got = tci_value_load(c->t, out + i * size);
        if (!same_value(c->t, got, want)) {
            report(c, "lane row", (int)c->mem * 100 + i, got, want);
            return;
        }
    }
}

static void judge_memory(const test_case *c, void *symbol)
{
    load_fn load = (load_fn)(uintptr_t)symbol;
    store_fn store = (store_fn)(uintptr_t)symbol;
    int lanes = c->lanes;
    uint64_t all = lanes == 64 ? UINT64_MAX : ((uint64_t)1 << lanes) - 1;
    bool strided = c->mem == TCI_MEM_LOAD_STRIDED || c->mem == TCI_MEM_LOAD_STRIDED_N ||
                   c->mem == TCI_MEM_LOAD_AT || c->mem == TCI_MEM_STORE_STRIDED ||
                   c->mem == TCI_MEM_STORE_STRIDED_N;
    bool partial = c->mem == TCI_MEM_LOAD_N || c->mem == TCI_MEM_LOAD_STRIDED_N ||
                   c->mem == TCI_MEM_STORE_N || c->mem == TCI_MEM_STORE_STRIDED_N;
    static const long strides[] = {1, 2, 3, -1, -5};
    for (int k = 0; k < (strided ? TCI_COUNT(strides) : 1); k++) {
        long stride = strided && lanes > 1 ? strides[k] : 1;
        for (int n = partial && lanes > 1 ? 1 : lanes;
             n <= (partial && lanes > 1 ? lanes - 1 : lanes); n++) {
            if (c->mem >= TCI_MEM_STORE && c->mem <= TCI_MEM_STORE_ONE) {
                judge_store(c, store, stride, c->mem == TCI_MEM_STORE_ONE ? 1 : n);
            } else if (c->mem == TCI_MEM_LOAD_MASK) {
                for (int j = 0; j < 12; j++) {
                    judge_load(c, load, 1, n,
                               j == 0   ? 0
                               : j == 1 ? all
                                        : (next_random() >> (j * 4)) & all);
                }
            } else if (c->mem <= TCI_MEM_LOAD_ONE) {
                judge_load(c, load, stride, n, c->mem == TCI_MEM_LOAD_ONE ? 1 : all >> (lanes - n));
            }
        }
    }
    if (c->mem > TCI_MEM_STORE_ONE) {
        bool half = c->mem >= TCI_MEM_HIGH_HALF; /* ORDER tci_mem: by a power of 2 */
        bool by_count = c->mem == TCI_MEM_FIRST_N;
        for (int n = half ? 1 : 0; n < (half ? TCI_MAX(lanes, 2) : lanes + by_count);
             n += half ? n : 1) {
            judge_lane_row(c, load, n);
        }
    }
}

static void judge_constants(void *handle)
{
    for (int k = 0; k < TCI_COUNT(compute_dtypes); k++) {
        tc_dtype t = compute_dtypes[k];
        char name[32];
        snprintf(name, sizeof name, "constants_%s", tci_dtype_get(t)->name);
        const char *array = tci_os_dlsym(handle, name);
        for (int i = 0; array && i < CORNERS; i++) {
            tci_value want = corner_value(t, i);
            tci_value got = tci_value_load(t, array + i * tci_dtype_get(t)->bytes);
            if (!same_value(t, got, want)) {
                report(&(test_case){.t = t, .to = t}, "constant", i, got, want);
            }
        }
        CHECK(array != NULL);
    }
}

/* ---- one compiler, one width ---- */

static bool build(const char *cc, const tci_target *t, const char *source, const char *object)
{
    const char *argv[48] = {cc};
    int n = 1;
    static const char *const plain[] = {"-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing",
                                        "-fno-math-errno",   "-fPIC",   "-Wl,-z,defs"};
    bool tcc = strcmp(cc, "tcc") == 0;
    if (strcmp(cc, "gcc") == 0) {
        argv[n++] = "-O1"; /* as cpu/cc.c runs it */
        argv[n++] = "-fexpensive-optimizations";
        argv[n++] = "-fcaller-saves";
    } else if (!tcc) {
        argv[n++] = "-O2";
        argv[n++] = "-fno-builtin-memset"; /* the loops of this file's cases are to stay loops */
        argv[n++] = "-fno-builtin-memcpy";
    }
    for (int i = 0; !tcc && i < TCI_COUNT(plain); i++) {
        argv[n++] = plain[i];
    }
    for (int i = 0; !tcc && t && i < t->n_flags; i++) {
        argv[n++] = t->flags[i];
    }
    argv[n++] = "-nostdlib";
    argv[n++] = "-shared";
    argv[n++] = "-w";
    argv[n++] = source;
    argv[n++] = "-o";
    argv[n++] = object;
    tci_str log = {0};
    int code = -1;
    tci_command command = {.argv = argv, .wall_ms = 300000, .log_limit = 4000};
    tci_spawn r = tci_os_run(&command, &log, &code);
    if (r != TCI_SPAWN_OK || code != 0) {
        fprintf(stderr, "%s: %s\n", cc, tci_str_text(&log));
    }
    tci_str_free(&log);
    return r == TCI_SPAWN_OK && code == 0;
}

static void add_all(int vector_bytes)
{
    n_cases = 0;
    for (int i = 0; i < TCI_COUNT(compute_dtypes); i++) {
        tc_dtype t = compute_dtypes[i];
        int lanes = vector_bytes ? vector_bytes / 4 : 1;
        add_prims(t, lanes);
        add_memory(t, t, lanes);
        if (vector_bytes && (tci_dtype_get(t)->bytes >= 4 || t == TC_BOOL)) {
            add_prims(t, lanes / 2);
            add_memory(t, t, lanes / 2);
        }
        for (int l = lanes; t == TC_F32 && l > 0 && l >= lanes / 2; l /= 2) {
            add_memory(t, TC_F16, l);
            add_memory(t, TC_BF16, l);
        }
        if (vector_bytes && tci_dtype_get(t)->bytes <= 2) {
            add_prims(t, TCI_MIN(vector_bytes / tci_dtype_get(t)->bytes, 64));
            add_memory(t, t, TCI_MIN(vector_bytes / tci_dtype_get(t)->bytes, 64));
        }
    }
}

static void judge(const char *cc, const tci_target *target, int vector_bytes)
{
    tci_str path = {0}, source = {0}, wrong = {0};
    tci_workdir folder;
    int why = 0;
    if (!tci_os_find_program(cc, &path)) {
        tci_str_free(&path);
        SKIP("this compiler is not here");
    }
    tci_str_free(&path);
    static tci_scratch s;
    seed = tct_seed * 0x9e3779b97f4a7c15u | 1;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        fprintf(stderr, "%s\n", s.message);
        CHECK(!"escaped");
        return;
    }
    add_all(vector_bytes);
    source.s = &s;
    print_file(&s, vector_bytes, &source);
    REQUIRE(tci_workdir_make(&folder, NULL, false, &wrong));
    const char *dir = folder.dir.path.text;
    const char *c_file = tci_scratch_printf(&s, "%s/dialect.c", dir);
    const char *so_file = tci_scratch_printf(&s, "%s/dialect.so", dir);
    CHECK(tci_os_publish(c_file, source.text, source.n, &why));
    n_wrong = 0;
    char text[256] = "";
    void *handle = build(cc, target, c_file, so_file) ? tci_os_dlopen(so_file, text) : NULL;
    if (!handle) {
        fprintf(stderr, "%s %s\n", c_file, text);
    }
    CHECK(handle != NULL);
    for (int i = 0; handle && i < n_cases; i++) {
        void *symbol = tci_os_dlsym(handle, tci_scratch_printf(&s, "case%d", i));
        if (!symbol) {
            n_wrong++;
        } else if (cases[i].kind == CASE_PRIM) {
            judge_prim(&cases[i], (prim_fn)(uintptr_t)symbol);
        } else {
            judge_memory(&cases[i], symbol);
        }
    }
    if (handle) {
        judge_constants(handle);
    }
    CHECK(n_wrong == 0);
    tci_workdir_end(&folder, !handle);
    tci_str_free(&wrong);
    tci_scratch_free(&s);
}

static void judge_width(const char *cc, int bits)
{
    tci_target t;
    tci_target_detect(&t, bits);
    if (bits > 0 && t.vector_bytes * 8 != bits) {
        SKIP("this processor has no vectors of that width");
    }
    judge(cc, &t, t.vector_bytes);
}

/* x86-64-v2, which has no FMA; other machines of that width have one (judge_width). */
static void judge_v2(const char *cc)
{
#if defined(__x86_64__)
    tci_target t = {.features = "sse42 vector=16"};
    tci_target_set_flags(&t);
    CHECK(t.n_flags == 1);
    judge(cc, &t, 16);
#else
    (void)cc;
    SKIP("flags of x86-64");
#endif
}

TEST(dialect_gcc_512)
{
    judge_width("gcc", 512);
}
TEST(dialect_gcc_256)
{
    judge_width("gcc", 256);
}
TEST(dialect_gcc_128)
{
    judge_width("gcc", 128);
}
TEST(dialect_gcc_scalar)
{
    judge_width("gcc", -1);
}
TEST(dialect_gcc_scalar_without_fma)
{
    judge("gcc", NULL, 0);
}
TEST(dialect_gcc_v2)
{
    judge_v2("gcc");
}
TEST(dialect_clang_v2)
{
    judge_v2("clang");
}
TEST(dialect_clang_512)
{
    judge_width("clang", 512);
}
TEST(dialect_clang_256)
{
    judge_width("clang", 256);
}
TEST(dialect_clang_128)
{
    judge_width("clang", 128);
}
TEST(dialect_clang_scalar)
{
    judge_width("clang", -1);
}
TEST(dialect_tcc_scalar)
{
    judge("tcc", NULL, 0);
}

TEST_MAIN
