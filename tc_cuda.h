/* tc_cuda.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_cuda.h ---- */
/* src/tc_cuda.h - root of the CUDA backend: CUDA source by NVRTC. Brought in by tc.h under TC_CUDA,
 * with or without tc_cpu.h. */
/* ---- src/cuda/dialect.c ---- */
/* cuda/dialect.c - the CUDA dialect: one block of threads is one wide vector machine.
 *
 * In: requests by name (emit/dialect.h), where `lanes` counts the lanes that ONE THREAD holds.
 * Out: definitions for NVRTC, without any #include.
 *
 * The one idea: a vector of T * q lanes is spread over the T threads of a block, q neighbouring
 * lanes each, so that a thread's lanes are one access of up to 16 bytes and a warp's accesses join.
 * Lane i belongs to thread i / q. Whatever is not a vector is computed by all threads alike, so
 * control flow is the same in the whole block and any statement may hold a barrier. Scalars are
 * spelled by the C dialect, which this one extends; only vectors differ: a struct of q elements.
 *
 * Lanes meet in three places: LANE (one lane to all), HIGH_HALF (lane i takes lane i + h) and
 * BARRIER (local arrays may be read by other threads than wrote them). */
#include <string.h>

/* ---- src/cuda/dialect.h ---- */
/* cuda/dialect.h - the CUDA dialect's maker. */
#ifndef TCI_CUDA_DIALECT_H
#define TCI_CUDA_DIALECT_H


enum { TCI_CUDA_MAX_THREADS = 512, TCI_CUDA_THREAD_BYTES = 16 };

/* vector_bytes: of one thread's lanes. */
TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes);

#endif

/* ---- src/cuda/dialect.c, continued ---- */
typedef struct tci_cuda_dialect {
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
} tci_cuda_dialect;

/* The C dialect's own functions, for scalars. */
static tci_cuda_dialect tci_cuda_scalar(tci_dialect *d)
{
    return *(const tci_cuda_dialect *)((tci_cd *)d->state)->more;
}

static const char *tci_cuda_type(tci_dialect *d, tc_dtype t, int lanes)
{
    tci_cd *cd = d->state;
    const char *element = tci_cuda_scalar(d).type(d, t, 1);
    if (lanes == 1) {
        return element;
    }
    bool is_new;
    const char *name = tci_scratch_printf(d->s, "tc_%s", tci_cd_suffix(cd, t, lanes));
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef struct { %s v[%d]; } %s;\n", element, lanes, name);
    }
    return name;
}

/* ---- prims: the scalar one on each of the thread's lanes ---- */

/* Scalars with an instruction or an exact function of their own; the others are the C dialect's. */
static const struct { uint8_t prim; const char *args, *f32, *f64; } tci_cuda_scalars[] = {
    {TCI_P_FMA, "a, b, c", "__fmaf_rn", "__fma_rn"}, {TCI_P_ABS, "a", "fabsf", "fabs"},
    {TCI_P_SQRT, "a", "__fsqrt_rn", "__dsqrt_rn"},   {TCI_P_FLOOR, "a", "floorf", "floor"},
    {TCI_P_CEIL, "a", "ceilf", "ceil"},              {TCI_P_TRUNC, "a", "truncf", "trunc"},
    {TCI_P_RINT, "a", "rintf", "rint"},
};

static const char *tci_cuda_scalar_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to,
                                        int imm)
{
    tci_cd *cd = d->state;
    for (int i = 0; i < TCI_COUNT(tci_cuda_scalars) && tci_dtype_is_float(t); i++) {
        if (tci_cuda_scalars[i].prim != p) {
            continue;
        }
        bool is_new;
        const char *args = tci_cuda_scalars[i].args;
        const char *name = tci_scratch_printf(d->s, "tc_%s_%s", tci_prim_get(p)->name,
                                              tci_dtype_get(t)->name);
        name = tci_cd_intern(cd, name, &is_new);
        if (is_new) {
            tci_str_printf(&cd->out, "#define %s(%s) %s(%s)\n", name, args,
                           t == TC_F32 ? tci_cuda_scalars[i].f32 : tci_cuda_scalars[i].f64, args);
        }
        return name;
    }
    return tci_cuda_scalar(d).prim(d, p, t, to, 1, imm);
}

static void tci_cuda_define_lanes(tci_cd *cd, const char *name, const char *scalar,
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

static const char *tci_cuda_any(tci_cd *cd, int lanes)
{
    bool is_new;
    const char *mask = cd->d.type(&cd->d, TC_BOOL, lanes), *one = cd->d.type(&cd->d, TC_BOOL, 1);
    const char *name = tci_scratch_printf(cd->d.s, "tc_any_x%d", lanes);
    name = tci_cd_intern(cd, name, &is_new);
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
static const char *tci_cuda_lanes_of(tci_cd *cd, int id, tc_dtype t, int lanes)
{
    const tci_helper *h = tci_helper_get(id);
    const char *type = cd->d.type(&cd->d, t, lanes), *mask = cd->d.type(&cd->d, TC_BOOL, lanes);
    bool is_new, two = h->arity == 2;
    const char *name = tci_scratch_printf(cd->d.s, "tc_lanes_%s_%s", h->name,
                                          tci_cd_suffix(cd, t, lanes));
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_cd_define_helper(cd, id);
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s a, %s%s%s m) {\n    %s r;\n    TC_LANES(r) {\n"
                       "        r.v[i] = m.v[i] ? %s(a.v[i]%s) : 0;\n    }\n    return r;\n}\n",
                       type, name, type, two ? type : "", two ? " b, " : "", mask, type, h->name,
                       two ? ", b.v[i]" : "");
    }
    return name;
}

static const char *tci_cuda_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                                 int imm)
{
    tci_cd *cd = d->state;
    if (lanes > 1 && tci_prim_is_math(p)) { /* the recipe on vectors: rare lanes are tested once */
        return tci_cuda_scalar(d).prim(d, p, t, to, lanes, imm);
    }
    const char *scalar = tci_cuda_scalar_prim(d, p, t, to, imm);
    if (lanes == 1) {
        return scalar;
    }
    bool is_new;
    const char *name = tci_cd_intern(cd, tci_scratch_printf(d->s, "%sx%d", scalar, lanes), &is_new);
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
        n_args = tci_helper_get(imm)->arity + 1;
        types[n_args - 1] = mask;
    }
    const char *result = info->result == 'O'   ? d->type(d, to, lanes)
                         : info->result == 'B' ? mask
                                               : type;
    tci_cuda_define_lanes(cd, name, scalar, types, n_args, result);
    return name;
}

/* ---- memory ---- */

/* $n the name, $T the vector type, $E its element, $S the storage type, $L and $W one element
 * loaded and stored, $B the mask type, $Q lanes of a thread. Counts and strides are of the whole
 * block's vector. */
static const struct { uint8_t mem; const char *text; } tci_cuda_rows[] = {
    {TCI_MEM_LOAD,
     "TC_I $T $n(const $S *p) {\n    $T r;\n    p += $Q * TC_THREAD;\n"
     "    if (TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const tc_pack<$S, $Q> w = *(const tc_pack<$S, $Q> *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $L(w.e + i);\n        }\n"
     "    } else {\n        TC_LANES(r) {\n            r.v[i] = $L(p + i);\n        }\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_LOAD_ALIGNED,
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const tc_pack<$S, $Q> w = *(const tc_pack<$S, $Q> *)(p + $Q * TC_THREAD);\n"
     "    TC_LANES(r) {\n        r.v[i] = $L(w.e + i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_REPEAT,
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const tc_pack<$S, $Q> w = *(const tc_pack<$S, $Q> *)(p + $Q * (TC_THREAD & 31));\n"
     "    TC_LANES(r) {\n        r.v[i] = $L(w.e + i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_ALIGNED,
     "TC_I void $n($S *p, $T x) {\n    tc_pack<$S, $Q> w;\n    TC_LANES(x) {\n"
     "        $W(w.e + i, x.v[i]);\n    }\n"
     "    *(tc_pack<$S, $Q> *)(p + $Q * TC_THREAD) = w;\n}\n"},
    {TCI_MEM_LANE_REPEAT,
     "TC_I $E $n($T x, int lane) {\n"
     "    return ($E)__shfl_sync(0xffffffffu, x.v[lane % $Q], lane / $Q);\n}\n"},
    {TCI_MEM_LOAD_MASK,
     "TC_I $T $n(const $S *p, $B m) {\n    $T r;\n    p += $Q * TC_THREAD;\n    TC_LANES(r) {\n"
     "        r.v[i] = m.v[i] ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N,
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    p += $Q * TC_THREAD;\n"
     "    n -= $Q * TC_THREAD;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED,
     "TC_I $T $n(const $S *p, tc_i64 stride) {\n    $T r;\n    p += stride * $Q * TC_THREAD;\n"
     "    TC_LANES(r) {\n        r.v[i] = $L(p + stride * i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED_N,
     "TC_I $T $n(const $S *p, tc_i64 stride, tc_i64 n) {\n    $T r;\n"
     "    p += stride * $Q * TC_THREAD;\n    n -= $Q * TC_THREAD;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + stride * i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE,
     "TC_I void $n($S *p, $T x) {\n    p += $Q * TC_THREAD;\n"
     "    if (TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n        tc_pack<$S, $Q> w;\n"
     "        TC_LANES(x) {\n            $W(w.e + i, x.v[i]);\n        }\n"
     "        *(tc_pack<$S, $Q> *)p = w;\n"
     "    } else {\n        TC_LANES(x) {\n            $W(p + i, x.v[i]);\n        }\n    }\n}\n"},
    {TCI_MEM_STORE_N,
     "TC_I void $n($S *p, $T x, tc_i64 n) {\n    p += $Q * TC_THREAD;\n    n -= $Q * TC_THREAD;\n"
     "    TC_LANES(x) {\n        if (i < n) {\n            $W(p + i, x.v[i]);\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_STORE_STRIDED,
     "TC_I void $n($S *p, tc_i64 stride, $T x) {\n    p += stride * $Q * TC_THREAD;\n"
     "    TC_LANES(x) {\n        $W(p + stride * i, x.v[i]);\n    }\n}\n"},
    {TCI_MEM_STORE_STRIDED_N,
     "TC_I void $n($S *p, tc_i64 stride, $T x, tc_i64 n) {\n    p += stride * $Q * TC_THREAD;\n"
     "    n -= $Q * TC_THREAD;\n    TC_LANES(x) {\n        if (i < n) {\n"
     "            $W(p + stride * i, x.v[i]);\n        }\n    }\n}\n"},
    {TCI_MEM_SPLAT,
     "TC_I $T $n($E x) {\n    $T r;\n    TC_LANES(r) {\n        r.v[i] = x;\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_IOTA,
     "TC_I $T $n($E first) {\n    $T r;\n    TC_LANES(r) {\n"
     "        r.v[i] = ($E)(first + $Q * TC_THREAD + i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_FIRST_N,
     "TC_I $T $n(tc_i64 n) {\n    $T r;\n    n -= $Q * TC_THREAD;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LANE,
     "TC_I $E $n($T x, int lane) {\n    return ($E)tc_lane(x, x.v[lane % $Q], lane / $Q);\n}\n"},
    {TCI_MEM_HIGH_HALF,
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        if (i < h) {\n"
     "            r.v[i] = x.v[(i + h) % $Q];\n        }\n    }\n    return r;\n}\n"},
};

static const char *tci_cuda_letter(tci_dialect *d, char letter, const char *name, tc_dtype t,
                                   tc_dtype storage, int lanes)
{
    tci_cuda_dialect scalar = tci_cuda_scalar(d);
    switch (letter) {
    case 'n': return name;
    case 'T': return d->type(d, t, lanes);
    case 'E': return d->type(d, t, 1);
    case 'B': return d->type(d, TC_BOOL, lanes);
    case 'S': return tci_dtype_get(storage)->ctype;
    case 'L': return scalar.mem(d, TCI_MEM_LOAD_ONE, t, storage, 1);
    case 'W': return scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1);
    default: return tci_scratch_printf(d->s, "%d", lanes);
    }
}

static void tci_cuda_define_mem(tci_dialect *d, const char *name, const char *text, tc_dtype t,
                                tc_dtype storage, int lanes)
{
    tci_cd *cd = d->state;
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
    tci_cd *cd = d->state;
    if (m == TCI_MEM_STORE_STREAM) {
        m = TCI_MEM_STORE;
    }
    if (m == TCI_MEM_BARRIER) {
        return "__syncthreads";
    }
    if (lanes == 1) {
        return tci_cuda_scalar(d).mem(d, m, compute, storage, 1);
    }
    bool is_new;
    const char *type = tci_cd_suffix(cd, compute, lanes);
    const char *name = tci_scratch_printf(d->s, "tc_mem%d_%s_%s", (int)m, type,
                                          tci_dtype_get(storage)->name);
    name = tci_cd_intern(cd, name, &is_new);
    for (int i = 0; is_new && i < TCI_COUNT(tci_cuda_rows); i++) {
        if (tci_cuda_rows[i].mem == m) {
            tci_cuda_define_mem(d, name, tci_cuda_rows[i].text, compute, storage, lanes);
        }
    }
    return name;
}

/* ---- the file ---- */

/* tc_lane and tc_down hold barriers before and after their use of the shared box, so that one
 * may follow another at once. A block has at most TCI_CUDA_MAX_THREADS threads. */
static const char tci_cuda_prelude_text[] =
    "#define __FMA__ 1\n#define TC_HAS(x) 0\n#define TC_GCC 0\n#define TC_CONVERT 0\n"
    "#define TC_I static __device__ __forceinline__\n"
    "#define TC_THREAD ((long long)threadIdx.x)\n"
    "#define TC_PRAGMA(x) _Pragma(#x)\n#define TC_UNROLL(n) TC_PRAGMA(unroll n)\n"
    "#define TC_LANES(r) _Pragma(\"unroll\") for (int i = 0; i < (int)(sizeof((r).v) / "
    "sizeof((r).v[0])); i++)\n"
    "#define TC_IS_ALIGNED(p, n) ((n) <= 16 && ((n) & ((n) - 1)) == 0 && "
    "((unsigned long long)(p) & ((n) - 1)) == 0)\n"
    "#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)\n"
    "#define __builtin_fma(a, b, c) __fma_rn(a, b, c)\n"
    "#define __builtin_inff() __int_as_float(0x7f800000)\n"
    "#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)\n"
    "#define __builtin_nanf(text) __int_as_float(0x7fc00000)\n"
    "#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)\n"
    "template <class S, int n> struct __align__(sizeof(S) * n > 16 ? 16 : sizeof(S) * n) tc_pack "
    "{ S e[n]; };\n"
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
    "r;\n}\n";

static void tci_cuda_prelude(tci_dialect *d, tci_str *out)
{
    tci_cd *cd = d->state;
    tci_str_add(out, tci_cuda_prelude_text);
    tci_str_add_n(out, tci_str_text(&cd->out), cd->out.n);
}

/* One block is one task. The arguments are one struct, so that a launch is one copy. */
static void tci_cuda_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                          int n_words)
{
    const char *word = d->type(d, TC_I64, 1);
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; %s lits[%d]; %s *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d) %s(const %s_args args)\n{\n"
                   "    void *const *bufs = args.bufs;\n    const %s *lits = args.lits;\n"
                   "    %s *fault = args.fault;\n"
                   "    const %s task_begin = blockIdx.x, task_end = task_begin + 1;\n",
                   symbol, TCI_MAX(l->n_operands, 1), word, TCI_MAX(n_words, 1), word,
                   l->threads, symbol, symbol, word, word, word);
}

TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes)
{
    tci_dialect *d = tci_dialect_c(s, 0);
    tci_cuda_dialect *scalar = TCI_NEW(s, tci_cuda_dialect);
    scalar->prim = d->prim;
    scalar->mem = d->mem;
    scalar->type = d->type;
    tci_cd *cd = d->state;
    cd->more = scalar;
    cd->any = tci_cuda_any;
    cd->lanes_of = tci_cuda_lanes_of;
    cd->helper_word = "__noinline__ ";
    d->name = "cuda";
    d->vector_bytes = vector_bytes;
    d->local_word = "__shared__ ";
    d->prim = tci_cuda_prim;
    d->mem = tci_cuda_mem;
    d->type = tci_cuda_type;
    d->prelude = tci_cuda_prelude;
    d->head = tci_cuda_head;
    return d;
}
/* ---- src/cuda/load.c ---- */
/* cuda/load.c - opens libcuda and libnvrtc.
 *
 * In: nothing. Out: tables of functions. The one idea: a table is filled once a process under a
 * lock and never changes after. NVRTC is opened only when something must be compiled (it takes
 * longer than anything else at a start), so its path can be had without opening it. */
#include <stdio.h>
#include <string.h>

/* ---- src/cuda/load.h ---- */
/* cuda/load.h - the CUDA driver and NVRTC as tables of functions, opened at run time: no CUDA
 * header, no library at link time. Names and enum values: the CUDA 13 driver API reference. */
#ifndef TCI_CUDA_LOAD_H
#define TCI_CUDA_LOAD_H

#include <stddef.h>


typedef unsigned long long tci_cu_ptr; /* device address */

typedef struct tci_cu_kernel_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params;
    void **extra;
    void *kernel, *context;
} tci_cu_kernel_params;

/* X(field, symbol, arguments) */
#define TCI_CU_ROWS(X)                                                                            \
    X(init, "cuInit", (unsigned))                                                                 \
    X(error_name, "cuGetErrorName", (int, const char **))                                         \
    X(driver_version, "cuDriverGetVersion", (int *))                                              \
    X(device_get, "cuDeviceGet", (int *, int))                                                    \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                 \
    X(context_set, "cuCtxSetCurrent", (void *))                                                   \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                       \
    X(stream_wait, "cuStreamSynchronize", (void *))                                               \
    X(module_load, "cuModuleLoadData", (void **, const void *))                                   \
    X(module_find, "cuModuleGetFunction", (void **, void *, const char *))                        \
    X(module_free, "cuModuleUnload", (void *))                                                    \
    X(function_attribute, "cuFuncGetAttribute", (int *, int, void *))                             \
    X(launch, "cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                                 unsigned, unsigned, void *, void **, void **))                   \
    X(alloc, "cuMemAlloc_v2", (tci_cu_ptr *, size_t))                                             \
    X(free, "cuMemFree_v2", (tci_cu_ptr))                                                         \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                  \
    X(host_free, "cuMemFreeHost", (void *))                                                       \
    X(copy, "cuMemcpyAsync", (tci_cu_ptr, tci_cu_ptr, size_t, void *))                            \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, tci_cu_ptr))                      \
    X(graph_create, "cuGraphCreate", (void **, unsigned))                                         \
    X(graph_add_kernel, "cuGraphAddKernelNode_v2",                                                \
      (void **, void *, void *const *, size_t, const tci_cu_kernel_params *))                     \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))    \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                            \
    X(graph_exec_free, "cuGraphExecDestroy", (void *))                                            \
    X(graph_free, "cuGraphDestroy", (void *))

#define TCI_NVRTC_ROWS(X)                                                                         \
    X(version, "nvrtcVersion", (int *, int *))                                                    \
    X(create, "nvrtcCreateProgram",                                                               \
      (void **, const char *, const char *, int, const char *const *, const char *const *))       \
    X(compile, "nvrtcCompileProgram", (void *, int, const char *const *))                         \
    X(log_size, "nvrtcGetProgramLogSize", (void *, size_t *))                                     \
    X(log, "nvrtcGetProgramLog", (void *, char *))                                                \
    X(cubin_size, "nvrtcGetCUBINSize", (void *, size_t *))                                        \
    X(cubin, "nvrtcGetCUBIN", (void *, char *))                                                   \
    X(destroy, "nvrtcDestroyProgram", (void **))

#define TCI_ROW(field, symbol, arguments) int (*field) arguments;
typedef struct tci_cu {
    TCI_CU_ROWS(TCI_ROW)
} tci_cu;
typedef struct tci_nvrtc {
    TCI_NVRTC_ROWS(TCI_ROW)
} tci_nvrtc;
#undef TCI_ROW

/* Process lifetime, opened at the first call; NULL: *why says why. Both from any thread. */
TCI_FN const tci_cu *tci_cu_get(const char **why);
TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why);
/* The file that tci_nvrtc_get would open, found without opening it: "" when nothing is found. */
TCI_FN const char *tci_nvrtc_path(void);

#endif

/* ---- src/cuda/load.c, continued ---- */
typedef struct tci_cu_symbol {
    const char *name;
    size_t offset;
} tci_cu_symbol;

#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_cu, field)},
static const tci_cu_symbol tci_cu_symbols[] = {TCI_CU_ROWS(TCI_ROW)};
#undef TCI_ROW
#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_nvrtc, field)},
static const tci_cu_symbol tci_nvrtc_symbols[] = {TCI_NVRTC_ROWS(TCI_ROW)};
#undef TCI_ROW

static struct {
    tci_mutex lock;
    bool cu_known, nvrtc_known;
    bool cu_works, nvrtc_works;
    tci_cu cu;
    tci_nvrtc nvrtc;
    char cu_why[256], nvrtc_why[256];
    char nvrtc_path[512];
} tci_cu_tables = {.lock = TCI_MUTEX_INIT};

static bool tci_cu_fill(void *library, const tci_cu_symbol *symbols, int n, void *table, char *why)
{
    for (int i = 0; i < n; i++) {
        void *function = tci_os_dlsym(library, symbols[i].name);
        if (!function) {
            snprintf(why, 256, "the library has no %s", symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
    }
    return true;
}

TCI_FN const tci_cu *tci_cu_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.cu_known) {
        void *library = tci_os_dlopen("libcuda.so.1", tci_cu_tables.cu_why);
        tci_cu_tables.cu_known = true;
        tci_cu_tables.cu_works =
            library && tci_cu_fill(library, tci_cu_symbols, TCI_COUNT(tci_cu_symbols),
                                   &tci_cu_tables.cu, tci_cu_tables.cu_why);
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.cu_why;
    return tci_cu_tables.cu_works ? &tci_cu_tables.cu : NULL;
}

/* Where distributions, NVIDIA's installers and containers put it; newest first. */
static const char *const tci_nvrtc_names[] = {
    "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda-13.0/lib/libnvrtc.so.13", "/usr/local/cuda/lib/libnvrtc.so.13",
    "/usr/lib/x86_64-linux-gnu/libnvrtc.so.13", "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12",
    "/usr/lib/aarch64-linux-gnu/libnvrtc.so.13", "/usr/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so"};

/* Caller holds the lock. */
static const char *tci_nvrtc_find(void)
{
    const char *wanted = tci_env_get(TCI_ENV_NVRTC);
    int64_t bytes, mtime;
    if (tci_cu_tables.nvrtc_path[0]) {
        return tci_cu_tables.nvrtc_path;
    }
    if (wanted && wanted[0]) {
        snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s", wanted);
    }
    for (int i = 0; i < TCI_COUNT(tci_nvrtc_names) && !tci_cu_tables.nvrtc_path[0]; i++) {
        if (tci_os_stat(tci_nvrtc_names[i], &bytes, &mtime)) {
            snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s",
                     tci_nvrtc_names[i]);
        }
    }
    return tci_cu_tables.nvrtc_path;
}

TCI_FN const char *tci_nvrtc_path(void)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    const char *path = tci_nvrtc_find();
    pthread_mutex_unlock(&tci_cu_tables.lock);
    return path;
}

static void *tci_nvrtc_open(char *why)
{
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    const char *path = tci_nvrtc_find();
    void *library = path[0] ? tci_os_dlopen(path, why) : NULL;
    for (int i = 0; i < TCI_COUNT(sonames) && !library; i++) {
        library = tci_os_dlopen(sonames[i], why);
    }
    return library;
}

TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.nvrtc_known) {
        void *library = tci_nvrtc_open(tci_cu_tables.nvrtc_why);
        tci_cu_tables.nvrtc_known = true;
        tci_cu_tables.nvrtc_works =
            library && tci_cu_fill(library, tci_nvrtc_symbols, TCI_COUNT(tci_nvrtc_symbols),
                                   &tci_cu_tables.nvrtc, tci_cu_tables.nvrtc_why);
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.nvrtc_why;
    return tci_cu_tables.nvrtc_works ? &tci_cu_tables.nvrtc : NULL;
}
/* ---- src/cuda/nvrtc.c ---- */
/* cuda/nvrtc.c - CUDA source to cubin files.
 *
 * In: a build request of the seam. Out: one cubin file for each source. Options: the real
 * architecture, so that loading never compiles; no contraction of a * b + c, which would change
 * bits; functions without a qualifier are the device's, so that texts shared with C compile. */
#include <stdio.h>
#include <string.h>

/* ---- src/cuda/nvrtc.h ---- */
/* cuda/nvrtc.h - builds with NVRTC, in this process. */
#ifndef TCI_CUDA_NVRTC_H
#define TCI_CUDA_NVRTC_H


/* architecture: the option, "--gpu-architecture=sm_90a". On failure *why is a borrowed text. */
TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why);

#endif

/* ---- src/cuda/nvrtc.c, continued ---- */
static void tci_nvrtc_say_log(const tci_nvrtc *rtc, void *program, tc_build *build)
{
    size_t n = 0;
    if (rtc->log_size(program, &n) || n <= 1) {
        return;
    }
    char *text = tci_heap_get(n + 1);
    if (text && !rtc->log(program, text)) {
        build->say(build->say_arg, text);
    }
    tci_heap_free(text);
}

static tc_status tci_nvrtc_write_cubin(const tci_nvrtc *rtc, void *program, const char *path,
                                       const char **why)
{
    size_t n = 0;
    int code = 0;
    if (rtc->cubin_size(program, &n) || n == 0) {
        *why = "NVRTC made no cubin";
        return TC_ERR_COMPILER;
    }
    char *cubin = tci_heap_get(n);
    if (!cubin) {
        *why = "out of memory for a cubin";
        return TC_ERR_MEMORY;
    }
    bool written = !rtc->cubin(program, cubin) && tci_os_publish(path, cubin, n, &code);
    tci_heap_free(cubin);
    *why = written ? "" : "a cubin could not be written";
    return written ? TC_OK : TC_ERR_IO;
}

static tc_status tci_nvrtc_build_one(const tci_nvrtc *rtc, tc_build *build, int i,
                                     const char *architecture, const char **why)
{
    const char *options[] = {architecture, "--fmad=false", "-default-device", "-std=c++17"};
    void *program = NULL;
    if (rtc->create(&program, build->sources[i], "tc.cu", 0, NULL, NULL)) {
        *why = "NVRTC cannot take the source";
        return TC_ERR_COMPILER;
    }
    int failed = rtc->compile(program, TCI_COUNT(options), options);
    tc_status status = TC_ERR_COMPILER;
    *why = "NVRTC refuses the generated source";
    if (failed || build->keep) {
        tci_nvrtc_say_log(rtc, program, build);
    }
    if (!failed) {
        status = tci_nvrtc_write_cubin(rtc, program, build->outputs[i], why);
    }
    rtc->destroy(&program);
    return status;
}

/* Kept sources lie beside the outputs, as the C compiler's do. */
static void tci_nvrtc_keep(const tc_build *build, int i)
{
    char path[600];
    int code;
    snprintf(path, sizeof(path), "%s.cu", build->outputs[i]);
    tci_os_publish(path, build->sources[i], strlen(build->sources[i]), &code);
}

TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why)
{
    const tci_nvrtc *rtc = tci_nvrtc_get(why);
    tc_status status = rtc ? TC_OK : TC_ERR_COMPILER;
    for (int i = 0; i < build->n && !status; i++) {
        build->processes++;
        status = tci_nvrtc_build_one(rtc, build, i, architecture, why);
        if (status || build->keep) {
            tci_nvrtc_keep(build, i);
        }
    }
    return status;
}
/* ---- src/cuda/backend.c ---- */
/* cuda/backend.c - the "cuda" backend: CUDA source by NVRTC, run by one GPU.
 *
 * In: the calls of the seam (api/backend.h). The one idea: everything goes through one stream of
 * the device's primary context, so order is the order of the calls; a recorded sequence is one
 * CUDA graph of explicit kernel nodes in a chain, launched by one driver call.
 *
 * Faults: kernels write to pinned host words that the device sees; sync, which waits for the
 * stream, hands them on to the words of the launches (tci_cuda.pending).
 * Invariant: tci_cuda.lock is held while anything is put into the stream or taken from pending. */

#include <stdio.h>
#include <string.h>


enum {
    TCI_CUDA_WORDS = 512,        /* faults between two syncs */
    TCI_CUDA_MAX_ARGUMENTS = 500 /* 8-byte words: what every driver takes */
};

typedef struct tci_cuda_function {
    void *handle;
    int threads;
    struct tci_cuda_function *next;
} tci_cuda_function;

typedef struct tci_cuda_module {
    void *handle;
    tci_cuda_function *functions;
} tci_cuda_module;

typedef struct tci_cuda_sequence {
    void *graph, *executable;
    int64_t *word;  /* pinned; NULL: no launch can fault */
    int64_t *fault; /* the caller's */
} tci_cuda_sequence;

static struct {
    tci_mutex lock;
    bool known;
    const tci_cu *cu;
    void *context, *stream;
    char architecture[48];
    tc_backend_target target;
    int64_t *words; /* pinned, TCI_CUDA_WORDS */
    struct { int64_t *word, *fault; } pending[TCI_CUDA_WORDS];
    int n_pending;
} tci_cuda = {.lock = TCI_MUTEX_INIT};

static _Thread_local char tci_cuda_error[256];
static _Thread_local bool tci_cuda_is_current;

/* ---- failures ---- */

static tc_status tci_cuda_say(const char *what, const char *detail)
{
    snprintf(tci_cuda_error, sizeof(tci_cuda_error), "%s%s%s", what, detail[0] ? ": " : "", detail);
    return TC_ERR_BACKEND;
}

/* TC_OK when the driver's code is 0. */
static tc_status tci_cuda_check(int code, const char *what)
{
    const char *name = NULL;
    if (code == 0) {
        return TC_OK;
    }
    tci_cuda.cu->error_name(code, &name);
    return tci_cuda_say(what, name ? name : "an unknown error");
}

static const char *tci_cuda_last_error(void *user)
{
    (void)user;
    return tci_cuda_error;
}

/* ---- the device ---- */

static void tci_cuda_use(void)
{
    if (!tci_cuda_is_current) {
        tci_cuda.cu->context_set(tci_cuda.context);
        tci_cuda_is_current = true;
    }
}

static tc_status tci_cuda_open_device(int device)
{
    const tci_cu *cu = tci_cuda.cu;
    tc_status status =
        tci_cuda_check(cu->context_retain(&tci_cuda.context, device), "cuDevicePrimaryCtxRetain");
    if (!status) {
        tci_cuda_use();
        status = tci_cuda_check(cu->stream_create(&tci_cuda.stream, 1), "cuStreamCreate");
    }
    if (!status) {
        size_t bytes = TCI_CUDA_WORDS * sizeof(int64_t);
        status =
            tci_cuda_check(cu->host_alloc((void **)&tci_cuda.words, bytes, 3), "cuMemHostAlloc");
    }
    if (!status) {
        memset(tci_cuda.words, 0, TCI_CUDA_WORDS * sizeof(int64_t));
    }
    return status;
}

/* Fills tci_cuda.target; usable only when everything works. */
static void tci_cuda_detect(void)
{
    enum { MAJOR = 75, MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_... */
    tc_backend_target *t = &tci_cuda.target;
    const char *why = "";
    int device = 0, major = 0, minor = 0, driver = 0;
    tci_cuda.cu = tci_cu_get(&why);
    if (!tci_cuda.cu) {
        snprintf(t->why, sizeof(t->why), "no CUDA driver: %.100s", why);
        return;
    }
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->init(0), "cuInit");
    if (!status) {
        status = tci_cuda_check(cu->device_get(&device, 0), "cuDeviceGet");
    }
    if (!status) {
        cu->device_attribute(&major, MAJOR, device);
        cu->device_attribute(&minor, MINOR, device);
        cu->driver_version(&driver);
        status = tci_cuda_open_device(device);
    }
    if (status) {
        snprintf(t->why, sizeof(t->why), "%.120s", tci_cuda_error);
        return;
    }
    snprintf(tci_cuda.architecture, sizeof(tci_cuda.architecture), "--gpu-architecture=sm_%d%d%s",
             major, minor, major == 9 ? "a" : "");
    snprintf(t->features, sizeof(t->features), "cuda sm_%d%d driver %d", major, minor, driver);
    t->usable = true;
}

static tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user;
    (void)vector_bits;
    pthread_mutex_lock(&tci_cuda.lock);
    if (!tci_cuda.known) {
        tci_cuda.known = true;
        tci_cuda.target.vector_bytes = TCI_CUDA_THREAD_BYTES;
        tci_cuda.target.block_threads = TCI_CUDA_MAX_THREADS;
        tci_cuda_detect();
    }
    *target = tci_cuda.target;
    pthread_mutex_unlock(&tci_cuda.lock);
    return TC_OK;
}

/* ---- compiling ---- */

/* The library is not opened for this: a warm start never needs it. */
static tc_status tci_cuda_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    const char *why = "";
    (void)user;
    (void)wanted; /* a C compiler */
    memset(compiler, 0, sizeof(*compiler));
    snprintf(compiler->path, sizeof(compiler->path), "%s", tci_nvrtc_path());
    compiler->vector_bytes = TCI_CUDA_THREAD_BYTES;
    if (compiler->path[0] && tci_os_stat(compiler->path, &compiler->bytes, &compiler->mtime_ns)) {
        return TC_OK;
    }
    if (tci_nvrtc_get(&why)) {
        return TC_OK;
    }
    tci_cuda_say("NVRTC cannot be opened", why);
    return TC_ERR_COMPILER;
}

static tc_status tci_cuda_compile(void *user, tc_build *build)
{
    const char *why = "";
    (void)user;
    tc_status status = tci_nvrtc_build(build, tci_cuda.architecture, &why);
    if (status) {
        tci_cuda_say(why, "");
    }
    return status;
}

/* ---- modules ---- */

static tc_status tci_cuda_module_load(void *user, const char *path, void **module)
{
    tci_str cubin = {0};
    int code = 0;
    (void)user;
    *module = NULL;
    tci_cuda_module *m = tci_heap_get(sizeof(*m));
    if (!m) {
        return TC_ERR_MEMORY;
    }
    tc_status status = TC_ERR_BACKEND;
    if (!tci_os_read_file(path, &cubin, &code)) {
        tci_cuda_say("a cubin cannot be read", strerror(code));
    } else {
        tci_cuda_use();
        status =
            tci_cuda_check(tci_cuda.cu->module_load(&m->handle, cubin.text), "cuModuleLoadData");
    }
    tci_str_free(&cubin);
    if (status) {
        tci_heap_free(m);
        return status;
    }
    *module = m;
    return TC_OK;
}

static void *tci_cuda_module_find(void *user, void *module, const char *symbol)
{
    enum { MAX_THREADS_PER_BLOCK = 0 }; /* CU_FUNC_ATTRIBUTE_...: what __launch_bounds__ said */
    tci_cuda_module *m = module;
    tci_cuda_function *f = tci_heap_get(sizeof(*f));
    (void)user;
    if (!f) {
        return NULL;
    }
    tci_cuda_use();
    if (tci_cuda.cu->module_find(&f->handle, m->handle, symbol) ||
        tci_cuda.cu->function_attribute(&f->threads, MAX_THREADS_PER_BLOCK, f->handle)) {
        tci_heap_free(f);
        return NULL;
    }
    pthread_mutex_lock(&tci_cuda.lock);
    f->next = m->functions;
    m->functions = f;
    pthread_mutex_unlock(&tci_cuda.lock);
    return f;
}

static void tci_cuda_module_free(void *user, void *module)
{
    tci_cuda_module *m = module;
    (void)user;
    tci_cuda_use();
    tci_cuda.cu->module_free(m->handle);
    while (m->functions) {
        tci_cuda_function *next = m->functions->next;
        tci_heap_free(m->functions);
        m->functions = next;
    }
    tci_heap_free(m);
}

/* ---- launches ---- */

/* The kernel's one argument: operands, literals, the fault word, at least one of each (see
 * tci_cuda_head). Returns its bytes; 0: too large. */
static size_t tci_cuda_pack(const tc_launch *launch, int64_t *word, int64_t *to)
{
    int n_buffers = TCI_MAX(launch->n_buffers, 1), n_literals = TCI_MAX(launch->n_literals, 1);
    if (n_buffers + n_literals + 1 > TCI_CUDA_MAX_ARGUMENTS) {
        return 0;
    }
    memset(to, 0, (size_t)(n_buffers + n_literals + 1) * sizeof(*to));
    for (int i = 0; i < launch->n_buffers; i++) {
        to[i] = (int64_t)(uintptr_t)launch->buffers[i];
    }
    for (int i = 0; i < launch->n_literals; i++) {
        to[n_buffers + i] = launch->literals[i];
    }
    to[n_buffers + n_literals] = (int64_t)(uintptr_t)word;
    return (size_t)(n_buffers + n_literals + 1) * sizeof(*to);
}

/* What both ways of launching tell the driver. False: the launch is larger than it can be. */
static bool tci_cuda_describe(const tc_launch *launch, size_t bytes, tci_cu_kernel_params *k)
{
    const tci_cuda_function *f = launch->function;
    int64_t blocks = launch->task_end - launch->task_begin;
    memset(k, 0, sizeof(*k));
    k->function = f->handle;
    k->grid_x = (unsigned)blocks;
    k->grid_y = k->grid_z = k->block_y = k->block_z = 1;
    k->block_x = (unsigned)f->threads;
    if (bytes == 0 || launch->task_begin != 0 || blocks > INT32_MAX) {
        tci_cuda_say("a kernel has more operands or blocks than a launch can have", "");
        return false;
    }
    return true;
}

/* Caller holds the lock. */
static void tci_cuda_collect(void)
{
    for (int i = 0; i < tci_cuda.n_pending; i++) {
        if (*tci_cuda.pending[i].word) {
            *tci_cuda.pending[i].fault = *tci_cuda.pending[i].word;
            *tci_cuda.pending[i].word = 0;
        }
    }
    tci_cuda.n_pending = 0;
}

/* A place in the list of pending faults; waits for the stream when it is full. */
static tc_status tci_cuda_reserve(void)
{
    tc_status status = TC_OK;
    if (tci_cuda.n_pending == TCI_CUDA_WORDS) {
        status = tci_cuda_check(tci_cuda.cu->stream_wait(tci_cuda.stream), "cuStreamSynchronize");
        tci_cuda_collect();
    }
    return status;
}

static tc_status tci_cuda_launch_locked(const tc_launch *launch)
{
    int64_t arguments[TCI_CUDA_MAX_ARGUMENTS], *word = NULL;
    tci_cu_kernel_params k;
    if (launch->fault) {
        tc_status status = tci_cuda_reserve();
        if (status) {
            return status;
        }
        word = &tci_cuda.words[tci_cuda.n_pending];
        tci_cuda.pending[tci_cuda.n_pending].word = word;
        tci_cuda.pending[tci_cuda.n_pending++].fault = launch->fault;
    }
    size_t bytes = tci_cuda_pack(launch, word, arguments);
    if (!tci_cuda_describe(launch, bytes, &k)) {
        return TC_ERR_LIMIT;
    }
    void *extra[] = {(void *)1, arguments, (void *)2, &bytes, NULL};
    return tci_cuda_check(tci_cuda.cu->launch(k.function, k.grid_x, 1, 1, k.block_x, 1, 1, 0,
                                              tci_cuda.stream, NULL, extra),
                          "cuLaunchKernel");
}

static tc_status tci_cuda_launch(void *user, const tc_launch *launch)
{
    (void)user;
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    tci_cuda_use();
    pthread_mutex_lock(&tci_cuda.lock);
    tc_status status = tci_cuda_launch_locked(launch);
    pthread_mutex_unlock(&tci_cuda.lock);
    return status;
}

static tc_status tci_cuda_sync(void *user)
{
    (void)user;
    tci_cuda_use();
    pthread_mutex_lock(&tci_cuda.lock);
    tc_status status = tci_cuda_check(tci_cuda.cu->stream_wait(tci_cuda.stream), "a kernel failed");
    tci_cuda_collect();
    pthread_mutex_unlock(&tci_cuda.lock);
    return status;
}

/* ---- sequences ---- */

static void tci_cuda_sequence_free(void *user, void *sequence)
{
    tci_cuda_sequence *s = sequence;
    (void)user;
    if (!s) {
        return;
    }
    tci_cuda_use();
    if (s->executable) {
        tci_cuda.cu->graph_exec_free(s->executable);
    }
    if (s->graph) {
        tci_cuda.cu->graph_free(s->graph);
    }
    if (s->word) {
        tci_cuda.cu->host_free(s->word);
    }
    tci_heap_free(s);
}

/* A chain: each node waits for the one before. */
static tc_status tci_cuda_add_nodes(tci_cuda_sequence *s, const tc_launch *launches, int n)
{
    int64_t arguments[TCI_CUDA_MAX_ARGUMENTS];
    tci_cu_kernel_params k;
    void *last = NULL;
    for (int i = 0; i < n; i++) {
        const tc_launch *launch = &launches[i];
        void *node = NULL;
        if (launch->task_end == launch->task_begin) {
            continue;
        }
        size_t bytes = tci_cuda_pack(launch, launch->fault ? s->word : NULL, arguments);
        if (!tci_cuda_describe(launch, bytes, &k)) {
            return TC_ERR_LIMIT;
        }
        void *extra[] = {(void *)1, arguments, (void *)2, &bytes, NULL};
        k.extra = extra;
        tc_status status = tci_cuda_check(
            tci_cuda.cu->graph_add_kernel(&node, s->graph, &last, last != NULL, &k),
            "cuGraphAddKernelNode");
        if (status) {
            return status;
        }
        last = node;
    }
    return tci_cuda_check(tci_cuda.cu->graph_instantiate(&s->executable, s->graph, 0),
                          "cuGraphInstantiate");
}

static tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence)
{
    tci_cuda_sequence *s = tci_heap_get(sizeof(*s));
    if (!s) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_use();
    tc_status status = tci_cuda_check(tci_cuda.cu->graph_create(&s->graph, 0), "cuGraphCreate");
    for (int i = 0; i < n && !status; i++) {
        if (launches[i].fault && !s->word) {
            status = tci_cuda_check(tci_cuda.cu->host_alloc((void **)&s->word, sizeof(*s->word), 3),
                                    "cuMemHostAlloc");
            s->fault = launches[i].fault;
        }
    }
    if (!status) {
        if (s->word) {
            *s->word = 0;
        }
        status = tci_cuda_add_nodes(s, launches, n);
    }
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}

static tc_status tci_cuda_replay(void *user, void *sequence)
{
    const tci_cuda_sequence *s = sequence;
    (void)user;
    tci_cuda_use();
    pthread_mutex_lock(&tci_cuda.lock);
    tc_status status = s->word ? tci_cuda_reserve() : TC_OK;
    if (!status && s->word) {
        tci_cuda.pending[tci_cuda.n_pending].word = s->word;
        tci_cuda.pending[tci_cuda.n_pending++].fault = s->fault;
    }
    if (!status) {
        status = tci_cuda_check(tci_cuda.cu->graph_launch(s->executable, tci_cuda.stream),
                                "cuGraphLaunch");
    }
    pthread_mutex_unlock(&tci_cuda.lock);
    return status;
}

/* ---- memory ---- */

static void *tci_cuda_alloc(void *user, int64_t bytes)
{
    tci_cu_ptr p = 0;
    (void)user;
    tci_cuda_use();
    tc_status status = tci_cuda_check(tci_cuda.cu->alloc(&p, (size_t)bytes), "cuMemAlloc");
    return status ? NULL : (void *)(uintptr_t)p;
}

static void tci_cuda_free(void *user, void *memory)
{
    (void)user;
    tci_cuda_use();
    tci_cuda.cu->free((tci_cu_ptr)(uintptr_t)memory);
}

static tc_status tci_cuda_copy(void *to, const void *from, int64_t bytes)
{
    tci_cuda_use();
    tc_status status = tci_cuda_check(
        tci_cuda.cu->copy((tci_cu_ptr)(uintptr_t)to, (tci_cu_ptr)(uintptr_t)from, (size_t)bytes,
                          tci_cuda.stream),
        "cuMemcpyAsync");
    return status
               ? status
               : tci_cuda_check(tci_cuda.cu->stream_wait(tci_cuda.stream), "cuStreamSynchronize");
}

static tc_status tci_cuda_upload(void *user, void *to_device, const void *from, int64_t bytes)
{
    (void)user;
    return tci_cuda_copy(to_device, from, bytes);
}

static tc_status tci_cuda_download(void *user, void *to, const void *from_device, int64_t bytes)
{
    (void)user;
    return tci_cuda_copy(to, from_device, bytes);
}

static bool tci_cuda_is_device(void *user, const void *memory)
{
    enum { MEMORY_TYPE = 2, DEVICE = 2 }; /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    unsigned type = 0;
    (void)user;
    tci_cuda_use();
    return !tci_cuda.cu->pointer_attribute(&type, MEMORY_TYPE, (tci_cu_ptr)(uintptr_t)memory) &&
           type == DEVICE;
}

/* ---- what users call (api/cuda.h) ---- */

static bool tci_cuda_works(void)
{
    tc_backend_target target;
    tci_cuda_target(NULL, 0, &target);
    return target.usable;
}

TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory)
{
    if (!memory || bytes < 0) {
        return TC_ERR_ARGUMENT;
    }
    *memory = NULL;
    if (!tci_cuda_works()) {
        return TC_ERR_BACKEND;
    }
    *memory = tci_cuda_alloc(NULL, TCI_MAX(bytes, 1));
    return *memory ? TC_OK : TC_ERR_MEMORY;
}

TC_API void tc_cuda_free(void *memory)
{
    if (memory && tci_cuda_works()) {
        tci_cuda_free(NULL, memory);
    }
}

TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes < 0 || (bytes > 0 && (!to || !from))) {
        return TC_ERR_ARGUMENT;
    }
    if (!tci_cuda_works()) {
        return TC_ERR_BACKEND;
    }
    return bytes ? tci_cuda_copy(to, from, bytes) : TC_OK;
}

TCI_FN const tc_backend *tci_cuda_backend(void)
{
    static const tc_backend backend = {
        .name = "cuda",
        .dialect = "cuda",
        .target = tci_cuda_target,
        .compiler = tci_cuda_compiler,
        .compile = tci_cuda_compile,
        .module_load = tci_cuda_module_load,
        .module_find = tci_cuda_module_find,
        .module_free = tci_cuda_module_free,
        .launch = tci_cuda_launch,
        .sync = tci_cuda_sync,
        .alloc = tci_cuda_alloc,
        .free = tci_cuda_free,
        .upload = tci_cuda_upload,
        .download = tci_cuda_download,
        .record = tci_cuda_record,
        .replay = tci_cuda_replay,
        .sequence_free = tci_cuda_sequence_free,
        .is_device = tci_cuda_is_device,
        .last_error = tci_cuda_last_error,
    };
    return &backend;
}
