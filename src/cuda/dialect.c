/* cuda/dialect.c - CUDA C++ code generation: writes types, primitives and memory accesses of loop
 * IR as CUDA source, where one block of threads acts as one wide SIMD machine.
 *
 * In: requests by name (emit/dialect.h), where `lanes` counts the lanes that ONE THREAD holds.
 * Out: definitions for NVRTC, without any #include.
 *
 * Design: a vector of T * q lanes is spread over the T threads of a block, q neighbouring lanes
 * each, so that a thread's lanes are one access of up to 16 bytes and a warp's accesses coalesce.
 * Lane i belongs to thread i / q. Scalars are computed by all threads alike, so control flow is
 * uniform in the block and any statement may contain a barrier. Scalar code is that of the C
 * dialect, which this one extends; only vectors differ: a struct of q elements.
 *
 * Lanes communicate in four operations: LANE (one lane to all), HIGH_HALF and its like (lane i
 * reads lane i + h), BELOW (h lanes read the last of the h before) and BARRIER (local arrays may
 * be read by other threads than wrote them). Blocks communicate by AWAIT, which waits for the
 * signal of an earlier block (TELL). GPUs dispatch blocks in the order of their indices, which no
 * manual guarantees, and run them to completion, so none waits for one that is not scheduled; words
 * bypass the L1 cache (volatile).
 *
 * A block may also hold several vectors, each in the threads of a warp or of a part of one; those
 * of one warp are all active or none is. Threads are then counted from the vector's first one, and
 * lanes communicate inside the vector: such definitions have the number of its threads in their
 * name. */
#include <string.h>

#include "../emit/c_templates.h"
#include "dialect.h"
#include "flash_attention.h"
#include "emit_custom_op.h"
#include "mma_sync.h"

typedef struct tci_cuda_dialect {
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
    int group;       /* threads of a warp and a vector of the kernel in print that meet; 1: none */
    int row_threads; /* threads of a vector of the kernel in print; 0: all of the block */
} tci_cuda_dialect;

/* The C dialect's own functions, for scalars. */
static tci_cuda_dialect tci_cuda_scalar(tci_dialect *d)
{
    return *(const tci_cuda_dialect *)((tci_c_dialect *)d->state)->more;
}

static const char *tci_cuda_type(tci_dialect *d, tc_dtype t, int lanes)
{
    tci_c_dialect *cd = d->state;
    const char *element = tci_cuda_scalar(d).type(d, t, 1);
    if (lanes == 1) {
        return element;
    }
    bool is_new;
    const char *name = tci_scratch_printf(d->s, "tc_%s", tci_c_dialect_suffix(cd, t, lanes));
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef struct { %s v[%d]; } %s;\n", element, lanes, name);
    }
    return name;
}

/* ---- prims: the scalar one on each of the thread's lanes ---- */

/* Scalars with an instruction or an exact function of their own; the others are the C dialect's. */
static const struct {
    uint8_t prim;
    const char *args, *f32, *f64;
} tci_cuda_scalars[] = {
    {TCI_P_FMA, "a, b, c", "__fmaf_rn", "__fma_rn"},
    {TCI_P_ABS, "a", "fabsf", "fabs"},
    {TCI_P_SQRT, "a", "__fsqrt_rn", "__dsqrt_rn"},
    {TCI_P_FLOOR, "a", "floorf", "floor"},
    {TCI_P_CEIL, "a", "ceilf", "ceil"},
    {TCI_P_TRUNC, "a", "truncf", "trunc"},
    {TCI_P_RINT, "a", "rintf", "rint"},
    {TCI_P_ROUNDB16, "a", "tc_round_bf16", ""},
};

/* Without under- or overflow: Newton's step on the hardware's approximate reciprocal, and two
 * remainders, the last of which rounds (Markstein, IA-64 and Elementary Functions, 2000). nvcc's
 * division makes the same steps after a branch, which serializes neighbouring elements. */
static const char tci_cuda_quotient_text[] =
    "#ifdef TC_NO_PTX\n"
    "#define tc_quotient(a, b) ((a) / (b))\n"
    "#else\n"
    "TC_I float tc_quotient(float a, float b) {\n    float r;\n"
    "    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(b));\n"
    "    r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);\n"
    "    float q = a * r;\n"
    "    q = __fmaf_rn(__fmaf_rn(-b, q, a), r, q);\n"
    "    return __fmaf_rn(__fmaf_rn(-b, q, a), r, q);\n}\n"
    "#endif\n";

static const char *tci_cuda_quotient(tci_c_dialect *cd)
{
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, "tc_quotient", &is_new);
    if (is_new) {
        tci_str_add(&cd->out, tci_cuda_quotient_text);
    }
    return name;
}

static const char *tci_cuda_scalar_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to,
                                        int imm)
{
    tci_c_dialect *cd = d->state;
    if (p == TCI_P_DIV && t == TC_F32 && imm == TCI_DIV_NORMAL) {
        return tci_cuda_quotient(cd);
    }
    for (int i = 0; i < TCI_COUNT(tci_cuda_scalars) && tci_dtype_is_float(t); i++) {
        if (tci_cuda_scalars[i].prim != p) {
            continue;
        }
        bool is_new;
        const char *args = tci_cuda_scalars[i].args;
        const char *name = tci_scratch_printf(d->s, "tc_%s_%s", tci_prim_get(p)->name,
                                              tci_dtype_get(t)->name);
        name = tci_c_dialect_intern(cd, name, &is_new);
        if (is_new) {
            tci_str_printf(&cd->out, "#define %s(%s) %s(%s)\n", name, args,
                           t == TC_F32 ? tci_cuda_scalars[i].f32 : tci_cuda_scalars[i].f64, args);
        }
        return name;
    }
    return tci_cuda_scalar(d).prim(d, p, t, to, 1, imm);
}

static void tci_cuda_define_lanes(tci_c_dialect *cd, const char *name, const char *scalar,
                                  const char *const *types, int n_args, const char *result)
{
    tci_str params = {.s = cd->d.s}, args = {.s = cd->d.s};
    for (int i = 0; i < n_args; i++) {
        tci_str_printf(&params, "%s%s %c", i ? ", " : "", types[i], 'a' + i);
        tci_str_printf(&args, "%s%c.v[i]", i ? ", " : "", 'a' + i);
    }
    tci_str_printf(&cd->out,
                   "TC_I %s %s(%s) {\n    %s r;\n    TC_LANES(r) {\n"
                   "        r.v[i] = %s(%s);\n    }\n    return r;\n}\n",
                   result, name, params.text, result, scalar, args.text);
}

static const char *tci_cuda_any(tci_c_dialect *cd, int lanes)
{
    bool is_new;
    const char *mask = cd->d.type(&cd->d, TC_BOOL, lanes), *one = cd->d.type(&cd->d, TC_BOOL, 1);
    const char *name = tci_scratch_printf(cd->d.s, "tc_any_x%d", lanes);
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s m) {\n    %s r = 0;\n    TC_LANES(m) {\n"
                       "        r |= m.v[i];\n    }\n    return r;\n}\n",
                       one, name, mask, one);
    }
    return name;
}

/* The helper itself is out of line, so that its registers and its length do not weigh on the code
 * that almost never calls it. */
static const char *tci_cuda_lanes_of(tci_c_dialect *cd, int id, tc_dtype t, int lanes)
{
    const tci_helper *h = tci_helper_get(id);
    const char *type = cd->d.type(&cd->d, t, lanes), *mask = cd->d.type(&cd->d, TC_BOOL, lanes);
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_lanes_%s_%s", h->name,
                                          tci_c_dialect_suffix(cd, t, lanes));
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_c_dialect_define_helper(cd, id);
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s a, %s m) {\n    %s r;\n    TC_LANES(r) {\n"
                       "        r.v[i] = m.v[i] ? %s(a.v[i]) : 0;\n    }\n    return r;\n}\n",
                       type, name, type, mask, type, h->name);
    }
    return name;
}

static const char *tci_cuda_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                                 int imm)
{
    tci_c_dialect *cd = d->state;
    if (lanes > 1 && tci_prim_is_math(p)) { /* on vectors: rare lanes are tested once */
        return tci_cuda_scalar(d).prim(d, p, t, to, lanes, imm);
    }
    const char *scalar = tci_cuda_scalar_prim(d, p, t, to, imm);
    if (lanes == 1) {
        return scalar;
    }
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, tci_scratch_printf(d->s, "%sx%d", scalar, lanes),
                                            &is_new);
    if (!is_new) {
        return name;
    }
    const tci_prim_info *info = tci_prim_get(p);
    const char *type = d->type(d, t, lanes), *mask = d->type(d, TC_BOOL, lanes);
    const char *types[3] = {type, type, type};
    int n_args = info->arity;
    if (p == TCI_P_SELECT) {
        types[0] = mask;
    }
    if (p == TCI_P_LANE1) {
        types[1] = mask;
    }
    const char *result = info->result == 'O'   ? d->type(d, to, lanes)
                         : info->result == 'B' ? mask
                                               : type;
    tci_cuda_define_lanes(cd, name, scalar, types, n_args, result);
    return name;
}

/* ---- memory ---- */

/* The name begins with the row's. $n is the whole of it, $T the vector type, $E its element, $S the
 * storage type, $L and $W one element loaded and stored, $P the type that carries a thread's part w
 * to or from memory, $I element i of that and $O its storing, $B the mask type, $Q lanes of a
 * thread, $H its number, $G how many lanes communicate, $R the mask of a shuffle, $D the storage
 * dtype's name, $U the rounding of a word of it for a matrix unit, $X x rounded so
 * (cuda/mma_sync.c). Counts and strides are of the whole vector. */
static const tci_cuda_row tci_cuda_rows[] = {
    {TCI_MEM_LOAD, "load",
     "TC_I $T $n(const $S *p) {\n    $T r;\n    p += $Q * $H;\n"
     "    if (TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const $P w = *(const $P *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $I;\n        }\n"
     "    } else {\n        TC_LANES(r) {\n            r.v[i] = $L(p + i);\n        }\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_LOAD_ALIGNED, "load_aligned",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const $P w = *(const $P *)(p + $Q * $H);\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_IF, "load_if",
     "TC_I $T $n(const $S *p, bool m) {\n    $T r;\n    $P w = {};\n"
     "    if (m) {\n        w = *(const $P *)(p + $Q * $H);\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N_ALIGNED, "load_n_aligned",
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    $P w = {};\n"
     "    if (n > $Q * $H) {\n        w = *(const $P *)(p + $Q * $H);\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_REPEAT, "load_repeat",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const $P w = *(const $P *)(p + $Q * (TC_THREAD & 31));\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_ALIGNED, "store_aligned",
     "TC_I void $n($S *p, $T x) {\n    $P w;\n    TC_LANES(x) {\n"
     "        $O\n    }\n"
     "    *($P *)(p + $Q * $H) = w;\n}\n"},
    {TCI_MEM_STORE_PAIRS, "store_pairs",
     "TC_I void $n($S *p, $E a, $E b) {\n    $P w;\n    const $T x = {a, b};\n"
     "    TC_LANES(x) {\n        $O\n    }\n    *($P *)p = w;\n}\n"},
    {TCI_MEM_LANE_REPEAT, "lane_repeat",
     "TC_I $E $n($T x, int lane) {\n"
     "    return ($E)__shfl_sync(0xffffffffu, x.v[lane % $Q], lane / $Q$R);\n}\n"},
    {TCI_MEM_LOAD_MASK, "load_mask",
     "TC_I $T $n(const $S *p, $B m) {\n    $T r;\n    p += $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = m.v[i] ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N, "load_n",
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    p += $Q * $H;\n"
     "    n -= $Q * $H;\n"
     "    if (n >= $Q && TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const $P w = *(const $P *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $I;\n        }\n"
     "        return r;\n    }\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED, "load_strided",
     "TC_I $T $n(const $S *p, tc_i64 stride) {\n    $T r;\n    p += stride * $Q * $H;\n"
     "    TC_LANES(r) {\n        r.v[i] = $L(p + stride * i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED_N, "load_strided_n",
     "TC_I $T $n(const $S *p, tc_i64 stride, tc_i64 n) {\n    $T r;\n"
     "    p += stride * $Q * $H;\n    n -= $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + stride * i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE, "store",
     "TC_I void $n($S *p, $T x) {\n    p += $Q * $H;\n    $P w;\n    TC_LANES(x) {\n"
     "        $O\n    }\n    tc_put<$G>(p, w);\n}\n"},
    {TCI_MEM_STORE_N, "store_n",
     "TC_I void $n($S *p, $T x, tc_i64 n) {\n    p += $Q * $H;\n    n -= $Q * $H;\n"
     "    if (n >= $Q && TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n        $P w;\n"
     "        TC_LANES(x) {\n            $O\n        }\n"
     "        *($P *)p = w;\n        return;\n    }\n"
     "    TC_LANES(x) {\n        if (i < n) {\n            $W(p + i, x.v[i]);\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_STORE_STRIDED, "store_strided",
     "TC_I void $n($S *p, tc_i64 stride, $T x) {\n    p += stride * $Q * $H;\n"
     "    TC_LANES(x) {\n        $W(p + stride * i, x.v[i]);\n    }\n}\n"},
    {TCI_MEM_STORE_STRIDED_N, "store_strided_n",
     "TC_I void $n($S *p, tc_i64 stride, $T x, tc_i64 n) {\n    p += stride * $Q * $H;\n"
     "    n -= $Q * $H;\n    TC_LANES(x) {\n        if (i < n) {\n"
     "            $W(p + stride * i, x.v[i]);\n        }\n    }\n}\n"},
    {TCI_MEM_SPLAT, "splat",
     "TC_I $T $n($E x) {\n    $T r;\n    TC_LANES(r) {\n        r.v[i] = x;\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_IOTA, "iota",
     "TC_I $T $n($E first) {\n    $T r;\n    TC_LANES(r) {\n"
     "        r.v[i] = ($E)(first + $Q * $H + i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_FIRST_N, "first_n",
     "TC_I $T $n(tc_i64 n) {\n    $T r;\n    n -= $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LANE, "lane",
     "TC_I $E $n($T x, int lane) {\n    return ($E)tc_lane(x, x.v[lane % $Q], lane / $Q);\n}\n"},
    {TCI_MEM_HIGH_HALF, "high_half",
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        if (i < h) {\n"
     "            r.v[i] = x.v[(i + h) % $Q];\n        }\n    }\n    return r;\n}\n"},
    {TCI_MEM_NEAR_HALF, "near_half",
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        r.v[i] = x.v[(i + h) % $Q];\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_HIGH_FIRST, "high_first",
     "TC_I $T $n($T x, int h) {\n    return tc_down_first(x, h / $Q);\n}\n"},
    {TCI_MEM_TAG, "tag",
     "TC_I tc_i64 $n(const $S *p) {\n    return *(const volatile $S *)p >> 32;\n}\n"},
    {TCI_MEM_TELL, "tell",
     "TC_I void $n($S *p, $E x, tc_i64 tag) {\n    if ($H == 0) {\n"
     "        TC_EACH(i, sizeof(x) / 4) {\n"
     "            ((volatile $S *)p)[i] = (tc_i64)((unsigned long long)tag << 32) |\n"
     "                                    ((const tc_two *)&x)[i];\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_AWAIT, "await",
     "TC_I $T $n(const $S *p, tc_i64 tag, tc_i64 n) {\n    $T r;\n"
     "    enum { N = sizeof(r) / 4, EACH = sizeof($E) / 4 };\n"
     "    const volatile $S *from = p + N * $H;\n    $S w[N];\n    bool all;\n"
     "    n = (n - $Q * $H) * EACH;\n    do {\n        all = true;\n"
     "        TC_EACH(i, N) {\n            w[i] = i < n ? from[i] : 0;\n"
     "            all = all && (i >= n || (unsigned)(w[i] >> 32) == (unsigned)tag);\n        }\n"
     "    } while (!all);\n    TC_EACH(i, N) {\n"
     "        ((tc_two *)&r)[i] = (tc_two)w[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_BELOW, "below",
     "TC_I $T $n($T x, $T none, int h) {\n    if (h >= $Q) {\n"
     "        return tc_below(x, none, x.v[$Q - 1], h / $Q);\n    }\n    TC_LANES(none) {\n"
     "        if (i & h) {\n            none.v[i] = x.v[((i | (h - 1)) ^ h) % $Q];\n        }\n"
     "    }\n    return none;\n}\n"},
};

static const char *tci_cuda_letter(tci_dialect *d, char letter, const char *name, tc_dtype t,
                                   tc_dtype storage, int lanes)
{
    tci_cuda_dialect scalar = tci_cuda_scalar(d);
    bool pairs = storage == TC_BF16 && t == TC_F32 && lanes % 2 == 0; /* of half the instructions */
    switch (letter) {
    case 'n': return name;
    case 'P':
        return pairs ? tci_scratch_printf(d->s, "tc_pack<tc_two, %d>", lanes / 2)
                     : tci_scratch_printf(d->s, "tc_pack<%s, %d>", tci_dtype_get(storage)->ctype,
                                          lanes);
    case 'I':
        return pairs ? "tc_half_of(w.e[i / 2], i % 2)"
                     : tci_scratch_printf(d->s, "%s(w.e + i)",
                                          scalar.mem(d, TCI_MEM_LOAD_ONE, t, storage, 1));
    case 'O':
        return pairs ? "w.e[i / 2] = tc_pair_bf16(x.v[i / 2 * 2], x.v[i / 2 * 2 + 1]);"
                     : tci_scratch_printf(d->s, "%s(w.e + i, x.v[i]);",
                                          scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1));
    case 'T': return d->type(d, t, lanes);
    case 'E': return d->type(d, t, 1);
    case 'B': return d->type(d, TC_BOOL, lanes);
    case 'S': return tci_dtype_get(storage)->ctype;
    case 'L': return scalar.mem(d, TCI_MEM_LOAD_ONE, t, storage, 1);
    case 'W': return scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1);
    case 'H':
        return scalar.row_threads
                   ? tci_scratch_printf(d->s, "(TC_THREAD & %d)", scalar.row_threads - 1)
                   : "TC_THREAD";
    case 'D': return tci_dtype_get(storage)->name;
    case 'U': return storage == TC_F32 ? "tc_tf32" : "";
    case 'X':
        return storage == TC_F32 ? "__int_as_float((int)tc_tf32((unsigned)__float_as_int(x)))"
                                 : "x";
    case 'G': return tci_scratch_printf(d->s, "%d", scalar.group);
    case 'R': return scalar.row_threads ? tci_scratch_printf(d->s, ", %d", scalar.row_threads) : "";
    default: return tci_scratch_printf(d->s, "%d", lanes);
    }
}

/* NULL: there is none. */
static const tci_cuda_row *tci_cuda_row_of(tci_c_dialect *cd, tci_mem m)
{
    for (int i = 0; i < TCI_COUNT(tci_cuda_rows); i++) {
        if (tci_cuda_rows[i].mem == m) {
            return &tci_cuda_rows[i];
        }
    }
    bool is_new;
    const tci_cuda_row *row = tci_cuda_warps_row(m);
    if (row) {
        tci_c_dialect_intern(cd, "tc_warps", &is_new);
        if (is_new) {
            tci_cuda_warps_prelude(&cd->out);
        }
    }
    return row;
}

static void tci_cuda_define_mem(tci_dialect *d, const char *name, const char *text, tc_dtype t,
                                tc_dtype storage, int lanes)
{
    tci_c_dialect *cd = d->state;
    tci_str own = {.s = d->s};
    (void)d->type(d, TC_I64, 1);
    while (*text) {
        size_t plain = strcspn(text, "$");
        tci_str_add_n(&own, text, plain);
        text += plain;
        if (*text) {
            tci_str_add(&own, tci_cuda_letter(d, text[1], name, t, storage, lanes));
            text += 2;
        }
    }
    tci_str_add_n(&cd->out, tci_str_text(&own), own.n);
}

static const char *tci_cuda_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                                int lanes)
{
    tci_c_dialect *cd = d->state;
    if (m == TCI_MEM_STORE_STREAM) {
        m = TCI_MEM_STORE;
    }
    lanes = m == TCI_MEM_STORE_PAIRS ? 2 : lanes;
    if (m == TCI_MEM_BARRIER) {
        return "__syncthreads";
    }
    if (lanes == 1 && m < TCI_MEM_TAG) {
        return tci_cuda_scalar(d).mem(d, m, compute, storage, 1);
    }
    const tci_cuda_row *row = tci_cuda_row_of(cd, m);
    TCI_ASSERT(d->s, row);
    bool is_new;
    int row_threads = tci_cuda_scalar(d).row_threads;
    const char *of = row_threads ? tci_scratch_printf(d->s, "_of%d", row_threads) : "";
    bool together = m == TCI_MEM_STORE && tci_cuda_scalar(d).group > 1;
    const char *name = tci_scratch_printf(d->s, "tc_%s_%s_%s%s%s", row->name,
                                          tci_c_dialect_suffix(cd, compute, lanes),
                                          tci_dtype_get(storage)->name, of,
                                          together ? "_together" : "");
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_cuda_define_mem(d, name, row->text, compute, storage, lanes);
    }
    return name;
}

/* ---- the file ---- */

/* bf16 by the one instruction that newer GPUs have for two of them, f16 by the one that all have;
 * tests define TC_NO_PTX. Back without one: where scores are rounded during products (attention),
 * ptxas has all products wait for the instruction (C7514). The C dialect's names are taken. */
static const char *const tci_cuda_halves_names[] = {"tc_narrow_f32_bf16", "tc_narrow_f32_f16",
                                                    "tc_widen_f32_f16"};
static const char tci_cuda_halves_text[] =
    "#if !defined(TC_NO_PTX) && __CUDA_ARCH__ >= 800\n"
    "TC_I unsigned tc_pair_bf16(float low, float high) {\n    unsigned r;\n"
    "    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low));\n"
    "    return r;\n}\n"
    "#else\n"
    "TC_I unsigned tc_bits_bf16(float a) {\n    const unsigned u = (unsigned)__float_as_int(a);\n"
    "    return a != a ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;\n}\n"
    "TC_I unsigned tc_pair_bf16(float low, float high) {\n"
    "    return tc_bits_bf16(high) << 16 | tc_bits_bf16(low);\n}\n"
    "#endif\n"
    "TC_I unsigned short tc_narrow_f32_bf16(float a) {\n"
    "    return (unsigned short)tc_pair_bf16(a, 0);\n}\n"
    "TC_I float tc_round_bf16(float a) { return __int_as_float((int)tc_pair_bf16(0, a)); }\n"
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned short tc_narrow_f32_f16(float a) {\n    unsigned short r;\n"
    "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));\n    return r;\n}\n"
    "#endif\n"
    "TC_I float tc_widen_f32_f16(unsigned short a) {\n"
    "    const unsigned u = (a & 0x7fffu) << 13;\n"
    "    const float f = u < 0x0f800000u ? __int_as_float((int)u) * 0x1p112f\n"
    "                                    : __int_as_float((int)(u | 0x7f800000u));\n"
    "    return __int_as_float(__float_as_int(f) | (int)((a & 0x8000u) << 16));\n}\n";

/* tc_lane, tc_down and tc_below hold barriers before and after their use of the shared box, so that
 * one may follow another at once. A block has at most TCI_CUDA_MAX_THREADS threads. What tc_below
 * asks is one of the 2 * threads around the thread itself, so vectors side by side, which begin at
 * multiples of that, keep to themselves.
 *
 * tc_put stores what each of `group` threads has after what the one before has. Where that is not
 * aligned, parts of words would go out in pieces, each a transfer to the cache of its own; so a
 * thread stores the aligned block that its part ends in, whose beginning the thread before has. The
 * first one stores what is before its first block, the last one what is after the last. Halves
 * cost more to move than that saves. */
static const char tci_cuda_prelude_text[] =
    "#define __FMA__ 1\n#define TC_HAS(x) 0\n#define TC_GCC 0\n#define TC_CONVERT 0\n"
    "#define TC_I static __device__ __forceinline__\n"
    "#define TC_THREAD ((long long)threadIdx.x)\n"
    "#ifndef TC_SURPLUS\n#define TC_SURPLUS\n#endif\n"
    "#define TC_PRAGMA(x) _Pragma(#x)\n#define TC_UNROLL(n) TC_PRAGMA(unroll n)\n"
    "#define TC_LANES(r) _Pragma(\"unroll\") for (int i = 0; i < (int)(sizeof((r).v) / "
    "sizeof((r).v[0])); i++)\n"
    "#define TC_EACH(i, n) _Pragma(\"unroll\") for (int i = 0; i < (int)(n); i++)\n"
    "#define TC_IS_ALIGNED(p, n) (((n) & ((n) - 1)) == 0 && "
    "((unsigned long long)(p) & (((n) < 16 ? (n) : 16) - 1)) == 0)\n"
    "#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)\n"
    "#define __builtin_fma(a, b, c) __fma_rn(a, b, c)\n"
    "#define __builtin_inff() __int_as_float(0x7f800000)\n"
    "#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)\n"
    "#define __builtin_nanf(text) __int_as_float(0x7fc00000)\n"
    "#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)\n"
    "typedef unsigned __attribute__((__may_alias__)) tc_two; /* halves */\n"
    "TC_I float tc_half_of(tc_two x, int i) {\n"
    "    return __int_as_float((int)(i ? x & 0xffff0000u : x << 16));\n}\n"
    "template <class S, int n> struct __align__(sizeof(S) * n > 16 ? 16 : sizeof(S) * n) tc_pack "
    "{ S e[n]; };\n"
    "template <int group, class S, class P> TC_I void tc_put(S *p, const P &x) {\n"
    "    enum { N = sizeof(P) / 4, MEETS = sizeof(S) >= 4 && sizeof(P) <= 16 && group >= 4 };\n"
    "    const int lane = (int)TC_THREAD & (group - 1);\n"
    "    const int mine = (int)(-(unsigned long long)p & (sizeof(P) - 1)) / 4;\n"
    "    unsigned w[2 * N + 1];\n"
    "    TC_EACH(i, MEETS ? N : 0) {\n        w[N + i] = ((const tc_two *)&x)[i];\n"
    "        w[i] = __shfl_sync(0xffffffffu, w[N + i], (int)(TC_THREAD + 31) & 31);\n    }\n"
    "    if (TC_IS_ALIGNED(p, sizeof(P))) {\n        *(P *)p = x;\n        return;\n    }\n"
    "    if (!MEETS) {\n        TC_EACH(i, sizeof(P) / sizeof(S)) {\n"
    "            p[i] = ((const S *)&x)[i];\n        }\n        return;\n    }\n"
    "    TC_EACH(i, N) {\n        if (lane == (i < mine ? 0 : group - 1)) {\n"
    "            ((tc_two *)p)[i] = w[N + i];\n        }\n    }\n"
    "    TC_EACH(i, 2 * N - 2) {\n        w[i] = mine & 2 ? w[i + 2] : w[i];\n    }\n"
    "    P block;\n    TC_EACH(i, N) {\n"
    "        ((tc_two *)&block)[i] = mine & 1 ? w[i + 1] : w[i];\n    }\n"
    "    if (lane > 0) {\n        *(P *)((tc_two *)p - (N - mine)) = block;\n    }\n}\n"
    "template <class T, class E> TC_I E tc_lane(const T &x, E mine, int thread) {\n"
    "    __shared__ E box;\n    __syncthreads();\n    if (threadIdx.x == thread) {\n"
    "        box = mine;\n    }\n    __syncthreads();\n    return box;\n}\n"
    "template <class T> TC_I T tc_down(T x, int threads) {\n    T r = x;\n"
    "    if (threads < 32) {\n        TC_LANES(r) {\n"
    "            r.v[i] = __shfl_down_sync(0xffffffffu, x.v[i], threads);\n        }\n"
    "        return r;\n    }\n"
    "    __shared__ T box[256];\n    __syncthreads();\n"
    "    int from = (int)threadIdx.x - threads;\n"
    "    if (from >= 0 && from < threads) {\n        box[from] = x;\n    }\n    __syncthreads();\n"
    "    if ((int)threadIdx.x < threads) {\n        r = box[threadIdx.x];\n    }\n    return "
    "r;\n}\n"
    "template <class T> TC_I T tc_down_first(T x, int threads) {\n    if (threads >= 32) {\n"
    "        return tc_down(x, threads);\n    }\n"
    "    x.v[0] = __shfl_down_sync(0xffffffffu, x.v[0], threads);\n    return x;\n}\n"
    "template <class T, class E> TC_I T tc_below(const T &x, T none, E last, int threads) {\n"
    "    const int from = ((int)threadIdx.x | (threads - 1)) ^ threads;\n"
    "    if (threads < 32) {\n        last = __shfl_sync(0xffffffffu, last, from & 31);\n"
    "    } else {\n        __shared__ E box[32];\n        __syncthreads();\n"
    "        if ((threadIdx.x & 31) == 31) {\n            box[threadIdx.x / 32] = last;\n"
    "        }\n        __syncthreads();\n        last = box[from / 32];\n    }\n"
    "    if (threadIdx.x & threads) {\n        TC_LANES(none) {\n"
    "            none.v[i] = last;\n        }\n    }\n    return none;\n}\n";

static void tci_cuda_prelude(tci_dialect *d, tci_str *out)
{
    tci_c_dialect *cd = d->state;
    tci_str_add(out, tci_cuda_prelude_text);
    tci_str_add(out, tci_cuda_halves_text);
    tci_str_add_n(out, tci_str_text(&cd->out), cd->out.n);
}

/* The definitions of a prelude, once in a file. */
static void tci_cuda_prelude_need(tci_dialect *d, const char *name, void (*prelude)(tci_str *))
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        prelude(&cd->out);
    }
}

/* The definitions that a kernel with that main loop needs. */
static void tci_cuda_matrix_need(tci_dialect *d, const tci_matrix *x)
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    tci_cuda_prelude_need(d, "tc_map", tci_cuda_wgmma_prelude);
    const char *name = tci_c_dialect_intern(cd, tci_cuda_wgmma_product_name(d->s, x), &is_new);
    if (is_new) {
        tci_cuda_wgmma_product(&cd->out, name, x);
    }
}

static void tci_cuda_held_need(tci_dialect *d, const tci_matrix *x)
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, tci_cuda_attention_product_name(d->s, x), &is_new);
    if (is_new) {
        tci_cuda_attention_product(&cd->out, name, x);
    }
}

static void tci_cuda_attention_need(tci_dialect *d, const tci_attention *x)
{
    tci_cuda_prelude_need(d, "tc_map", tci_cuda_wgmma_prelude);
    tci_cuda_prelude_need(d, "tc_attention", tci_cuda_attention_prelude);
    if (x->threads) {
        tci_cuda_prelude_need(d, "tc_flash", tci_cuda_simt_attention_prelude);
        return;
    }
    tci_cuda_matrix_need(d, &x->in[0]);
    tci_cuda_prelude_need(d, x->is_online ? "tc_online" : "tc_backward",
                          x->is_online ? tci_cuda_online_prelude : tci_cuda_backward_prelude);
    for (int i = 0; i < x->n_out; i++) {
        tci_cuda_held_need(d, &x->out[i]);
    }
}

static void tci_cuda_score_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                                int i)
{
    (void)d;
    tci_cuda_attention_open(out, symbol, l, i);
}

static void tci_cuda_score_tail(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                                int i)
{
    (void)d;
    tci_cuda_attention_close(out, symbol, l, i);
}

static const char *tci_cuda_rounded(tci_dialect *d, tci_prim p)
{
    (void)d;
    return p == TCI_P_MUL ? "tc_mul_bf16" : p == TCI_P_ADD ? "tc_add_bf16" : NULL;
}

/* Where a vector is among those of its block. */
static void tci_cuda_row_threads(tci_dialect *d, tci_str *out, const char *word)
{
    int row_threads = tci_cuda_scalar(d).row_threads;
    if (row_threads) {
        tci_str_printf(out, "    const %s row = TC_THREAD / %d, thread = TC_THREAD & %d;\n", word,
                       row_threads, row_threads - 1);
    }
}

/* One block is one task. The arguments are one struct, so that a launch is one copy. */
static void tci_cuda_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                          int n_words)
{
    const char *word = d->type(d, TC_I64, 1);
    tci_cuda_dialect *own = ((tci_c_dialect *)d->state)->more;
    own->group = l->together ? TCI_MIN(l->threads, TCI_WARP) : 1;
    own->row_threads = l->rows > 1 ? l->threads : 0; /* of a template too: it follows others */
    if (l->attention) {
        tci_cuda_attention_need(d, l->attention);
        tci_cuda_attention_head(out, symbol, l, n_words);
        return;
    }
    if (l->matrix) {
        tci_cuda_matrix_need(d, l->matrix);
        tci_cuda_wgmma_head(out, symbol, l, n_words);
        return;
    }
    if (l->is_member) {
        tci_str_printf(out,
                       "TC_I void %s(void *const *bufs, const %s *lits, %s *fault, "
                       "const %s task_begin, const %s task_end)\n{\n",
                       symbol, word, word, word, word);
        tci_cuda_row_threads(d, out, word);
        return;
    }
    const char *resident = l->resident ? tci_scratch_printf(d->s, ", %d", l->resident) : "";
    /* a merged kernel takes operands by variable numbers: without a copy of them all */
    const char *indexed = l->n_members ? "__grid_constant__ " : "";
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; %s lits[%d]; %s *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(const %s%s_args args)\n"
                   "{\n"
                   "    void *const *bufs = args.bufs;\n    const %s *lits = args.lits;\n"
                   "    %s *fault = args.fault;\n"
                   "    const %s task_begin = blockIdx.x, task_end = task_begin + 1;\n",
                   symbol, TCI_MAX(l->n_operands + (l->work_bytes != 0), 1), word,
                   TCI_MAX(n_words, 1), word, l->threads * l->rows, resident, symbol, indexed,
                   symbol, word, word, word);
    tci_cuda_row_threads(d, out, word);
}

static void tci_cuda_tail(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l)
{
    (void)d;
    if (l->attention) {
        tci_cuda_attention_tail(out, symbol, l);
    } else if (l->matrix) {
        tci_cuda_wgmma_tail(out, symbol);
    } else {
        tci_str_add(out, "}\n");
    }
}

TCI_FN const tc_dialect *tci_cuda_words(void)
{
    static const tc_dialect words = {.space = "", .operand = "bufs[#]", .make = tci_dialect_cuda};
    return &words;
}

TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes)
{
    tci_dialect *d = tci_dialect_c(s, 0);
    tci_cuda_dialect *scalar = TCI_NEW(s, tci_cuda_dialect);
    scalar->prim = d->prim;
    scalar->mem = d->mem;
    scalar->type = d->type;
    tci_c_dialect *cd = d->state;
    cd->more = scalar;
    cd->any = tci_cuda_any;
    cd->lanes_of = tci_cuda_lanes_of;
    cd->helper_word = "__noinline__ ";
    bool is_new;
    for (int i = 0; i < TCI_COUNT(tci_cuda_halves_names); i++) {
        tci_c_dialect_intern(cd, tci_cuda_halves_names[i], &is_new);
    }
    d->words = tci_cuda_words();
    d->vector_bytes = vector_bytes;
    d->local_word = "__shared__ ";
    d->table_word = "static __constant__ const ";
    d->prim = tci_cuda_prim;
    d->mem = tci_cuda_mem;
    d->type = tci_cuda_type;
    d->prelude = tci_cuda_prelude;
    d->head = tci_cuda_head;
    d->score_head = tci_cuda_score_head;
    d->score_tail = tci_cuda_score_tail;
    d->rounded = tci_cuda_rounded;
    d->tail = tci_cuda_tail;
    d->call = tci_cuda_custom;
    return d;
}
