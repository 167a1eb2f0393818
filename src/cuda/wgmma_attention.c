/* cuda/wgmma_attention.c - writes the CUDA source of fused attention on WGMMA: the main loop,
 * layered as in cuda/wgmma_gemm.c, whose PTX wrappers it reuses.
 *
 * Shared memory, from a multiple of 1024: the queries of a tile, and if there is room of the next
 * one, a ring of blocks of keys, one of values, the final accumulators, mbarriers. Slots: first the
 * queries', then the rings of keys and of values, each slot with a full and an empty mbarrier.
 * Queries and keys are in slabs of 64 elements of d, a row for each query or key; values in
 * parts of 64 keys, each of slabs of 64 columns, a row for each key.
 *
 * Element i of a thread's scores is of row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and key 8 * (i /
 * 4) + 2 * (lane % 4) + i % 2; four threads share a row. Pairs of them, rounded, are already the
 * registers of the second product's first operand.
 *
 * If keys are masked out (causal or banded mask) for a tile's queries, the fully masked steps are
 * skipped when the score of masked keys is so far below the maximum of each row that its
 * exponential is 0: each warp stores its distance after the first step, and the producer and all
 * consumers read all of these after the last step before the masked ones. Only steps that the mask
 * boundary crosses test each score. Tiles are assigned longest first: to the blocks in order, then
 * in reverse, for balance.
 *
 * Each group of four warps issues the products of a step when the other group has issued its own,
 * so that one computes exponentials while the other's products run.
 *
 * Invariants: the accumulators of a step are awaited after the exponentials of the next one: a
 * branch, whose arms both wait, keeps the compiler from waiting earlier (tc_attention_behind), and
 * no register of a running product is touched: tc_registers_here, after each wait, keeps the
 * compiler from reading them before it. Each warp stores and reads rows of its own, so a warp
 * barrier is enough there. */
#include "wgmma_attention.h"

#include <string.h>

enum { TCI_CUDA_ATTENTION_NEAR = 32 << 20 }; /* bytes of keys and values in the last cache */

/* ---- the prelude ---- */

/* tc_fma_bf16: of two halves at once, the lower ones 0; c: -0 in both, or another such value. */
static const char tci_cuda_attention_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "#define TC_MULTIPLY_HELD(type, columns) tc_multiply_held_##type##_##columns\n"
    "template <int n> TC_I void tc_registers_fewer() {\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "template <int n> TC_I void tc_registers_more() {\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "TC_I float tc_swap(float x, int lanes) {\n"
    "    return __shfl_xor_sync(0xffffffffu, x, lanes);\n}\n"
    "TC_I float tc_fma_bf16(float a, float b, unsigned c) {\n    unsigned r;\n"
    "    asm(\"fma.rn.bf16x2 %0, %1, %2, %3;\" : \"=r\"(r) : \"r\"(__float_as_int(a)), "
    "\"r\"(__float_as_int(b)), \"r\"(c));\n    return __int_as_float((int)r);\n}\n"
    "TC_I float tc_mul_bf16(float a, float b) { return tc_fma_bf16(a, b, 0x80008000u); }\n"
    "TC_I float tc_add_bf16(float a, float b) {\n"
    "    return tc_fma_bf16(a, 1.0f, (unsigned)__float_as_int(b));\n}\n"
    "TC_I float tc_power_of_2(float x) {\n    float r;\n"
    "    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n    return r;\n}\n"
    "TC_I float tc_log_2(float x) {\n    float r;\n"
    "    asm(\"lg2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n    return r;\n}\n"
    "TC_I float tc_load_one(unsigned from) {\n    float r;\n"
    "    asm volatile(\"ld.shared::cta.f32 %0, [%1];\" : \"=f\"(r) : \"r\"(from) : "
    "\"memory\");\n    return r;\n}\n"
    "template <int n> TC_I void tc_registers_here(float (&s)[n]) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < n; i += 8) {\n"
    "        asm volatile(\"\" : \"+f\"(s[i]), \"+f\"(s[i + 1]), \"+f\"(s[i + 2]), "
    "\"+f\"(s[i + 3]), \"+f\"(s[i + 4]), \"+f\"(s[i + 5]), \"+f\"(s[i + 6]), \"+f\"(s[i + 7]) "
    ":: \"memory\");\n    }\n}\n"
    "template <int n> TC_I void tc_attention_behind(float (&s)[n], bool first) {\n"
    "    tc_registers_here(s);\n"
    "    if (first) {\n        tc_products_wait<0>();\n    } else {\n"
    "        tc_products_wait<0>();\n    }\n}\n"
    "#endif\n";

/* Behind the barriers of slots: one that all consumers' warps have left their distance, one for the
 * turn of each consumer, and the distances, those of a tile while others read those of the tile
 * before. */
static const char tci_cuda_attention_loading[] =
    "template <class S> TC_I unsigned tc_attention_told(unsigned at) {\n"
    "    return at + S::barriers + 16 * S::stages;\n}\n"
    "template <class S> TC_I unsigned tc_attention_turn(unsigned at, int group) {\n"
    "    return tc_attention_told<S>(at) + 8 + 8 * group;\n}\n"
    "template <class S> TC_I unsigned tc_attention_word(unsigned at, unsigned turn, int warp) {\n"
    "    return tc_attention_turn<S>(at, S::consumers) + 8 * (turn * 4 * S::consumers + warp);\n}\n"
    "TC_I int tc_attention_next(int round) {\n"
    "    const int blocks = gridDim.x, block = blockIdx.x;\n"
    "    return round * blocks + (round % 2 ? blocks - 1 - block : block);\n}\n"
    "template <class S> TC_I int tc_attention_rest(unsigned at, int end, unsigned &turn) {\n"
    "    tc_barrier_wait(tc_attention_told<S>(at), turn);\n"
    "    for (int i = 0; i < 4 * S::consumers; i++) {\n"
    "        if (!(tc_load_one(tc_attention_word<S>(at, turn, i)) > 128.0f)) {\n"
    "            end = S::keys;\n        }\n    }\n"
    "    turn ^= 1;\n    return end;\n}\n"
    "template <class S> TC_I void tc_attention_begin(unsigned at) {\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), 4 * S::consumers);\n        }\n"
    "        tc_barrier_init(tc_attention_told<S>(at), 4 * S::consumers);\n"
    "        for (int i = 0; i < S::consumers; i++) {\n"
    "            tc_barrier_init(tc_attention_turn<S>(at, i), 4);\n        }\n"
    "        tc_barrier_init_done();\n    }\n    __syncthreads();\n}\n"
    "template <class S> TC_I void tc_attention_load(unsigned at, const tc_map *maps) {\n"
    "    int ring = 0;\n    unsigned parity = 1, turn = 0;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n"
    "        const int own = i % S::slots;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::queries_loaded);\n"
    "        for (int k = 0; k < S::depth; k += 64) {\n"
    "            S::load_queries(at + own * S::queries_bytes + k / 64 * S::queries_slab, maps, "
    "tc_full<S>(at, own), p, k);\n        }\n"
    "        int end = S::end(p);\n        bool asks = end < S::keys;\n"
    "        for (int key = 0; key < end; key += S::step) {\n"
    "            const int slot = S::slots + ring, after = slot + S::rings;\n"
    "            p.n = key;\n"
    "            tc_barrier_wait(tc_empty<S>(at, slot), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, slot), S::keys_loaded);\n"
    "            for (int k = 0; k < S::depth; k += 64) {\n"
    "                S::load_keys(at + S::keys_at + ring * S::keys_bytes + "
    "k / 64 * S::keys_slab, maps + 1, tc_full<S>(at, slot), p, k);\n            }\n"
    "            p.n = 0;\n"
    "            tc_barrier_wait(tc_empty<S>(at, after), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, after), S::values_bytes);\n"
    "            for (int k = 0; k < S::step; k += 64) {\n"
    "                S::load_values(at + S::values_at + ring * S::values_bytes + "
    "k / 64 * S::values_part, maps + 2, tc_full<S>(at, after), p, key + k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "            if (asks && key + S::step == end) {\n                asks = false;\n"
    "                end = tc_attention_rest<S>(at, end, turn);\n            }\n"
    "        }\n    }\n}\n";

/* A thread's part of a tile. most and sum: of its two rows; scale: the factor of the accumulators
 * so far relative to the present step. */
static const char tci_cuda_attention_steps[] =
    "template <class S> struct tc_attention {\n"
    "    float o[S::columns / 2], s[S::step / 2], most[2], sum[2], scale[2];\n"
    "    unsigned w[S::step / 4];\n};\n"
    "template <class S>\n"
    "TC_I void tc_attention_scores(tc_attention<S> &x, unsigned at, unsigned queries, int ring) {\n"
    "    const unsigned long long q = tc_box(queries);\n"
    "    const unsigned long long k = tc_box(at + S::keys_at + ring * S::keys_bytes);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < (S::depth + 15) / 16; i++) {\n"
    "        S::multiply(x.s, q + i / 4 * (S::queries_slab / 16) + i % 4 * 2,\n"
    "                    k + i / 4 * (S::keys_slab / 16) + i % 4 * 2, i > 0);\n    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S>\n"
    "TC_I void tc_attention_sums(tc_attention<S> &x, unsigned at, int ring, int add) {\n"
    "    const unsigned long long v = tc_box(at + S::values_at + ring * S::values_bytes);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 16; i++) {\n"
    "        S::multiply_held(x.o, x.w + 4 * i, v + i / 4 * (S::values_part / 16) + i % 4 * 128,\n"
    "                         i > 0 ? 1 : add);\n    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S, class F>\n"
    "TC_I void tc_attention_each(tc_attention<S> &x, tc_place p, int group, int key, F score) {\n"
    "    const int lane = tc_warp_lane<S>(), first = key + 2 * (lane & 3);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::keys_end(first + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (S::keys % S::step != 0 && key + S::step > S::keys) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = first + i / 4 * 8 + i % 2 < S::keys ? x.s[i] : -__builtin_inff();\n"
    "        }\n    }\n}\n"
    "template <class S, class F, class G>\n"
    "TC_I void tc_attention_values(tc_attention<S> &x, tc_place p, int group, int key, F score, "
    "G seen) {\n"
    "    if (key + S::step <= S::seen(p.m + 64 * group)) {\n"
    "        tc_attention_each<S>(x, p, group, key, seen);\n    } else {\n"
    "        tc_attention_each<S>(x, p, group, key, score);\n    }\n}\n"
    "template <class S> TC_I void tc_attention_powers(tc_attention<S> &x, bool fresh) {\n"
    "    const float log2e = 1.44269504f;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float mosts[2] = {x.s[2 * r], x.s[2 * r + 1]}, sums[2] = {0, 0};\n"
    "#pragma unroll\n"
    "        for (int i = 4; i < S::step / 2; i += 4) {\n"
    "            mosts[0] = fmaxf(mosts[0], x.s[i + 2 * r]);\n"
    "            mosts[1] = fmaxf(mosts[1], x.s[i + 2 * r + 1]);\n        }\n"
    "        float most = fmaxf(mosts[0], mosts[1]);\n"
    "        most = fmaxf(most, tc_swap(most, 1));\n"
    "        most = fmaxf(most, tc_swap(most, 2));\n"
    "        const float old = fresh ? -__builtin_inff() : x.most[r];\n"
    "        x.most[r] = fmaxf(old, most);\n"
    "        const float off = x.most[r] == -__builtin_inff() ? 0.0f : x.most[r] * log2e;\n"
    "        x.scale[r] = tc_power_of_2(__fmaf_rn(old, log2e, -off));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i += 4) {\n"
    "#pragma unroll\n"
    "            for (int j = i + 2 * r; j < i + 2 * r + 2; j++) {\n"
    "                x.s[j] = tc_power_of_2(__fmaf_rn(x.s[j], log2e, -off));\n"
    "                sums[j % 2] += x.s[j];\n            }\n        }\n"
    "        const float sum = sums[0] + sums[1];\n"
    "        x.sum[r] = fresh ? sum : __fmaf_rn(x.sum[r], x.scale[r], sum);\n    }\n}\n"
    "template <class S> TC_I void tc_attention_round(tc_attention<S> &x) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 4; i++) {\n"
    "        x.w[i] = S::weights(x.s[2 * i], x.s[2 * i + 1]);\n    }\n}\n";

/* Difference between a warp's row maxima and `cut`, the score of masked elements; if `cut` is -inf,
 * masked elements are 0 however low the maxima are. */
static const char tci_cuda_attention_telling[] =
    "template <class S>\n"
    "TC_I void tc_attention_tell(tc_attention<S> &x, unsigned at, unsigned turn, float cut) {\n"
    "    float far = fminf(x.most[0] - cut, x.most[1] - cut);\n"
    "    far = fminf(far, tc_swap(far, 4));\n    far = fminf(far, tc_swap(far, 8));\n"
    "    far = fminf(far, tc_swap(far, 16));\n"
    "    far = cut == -__builtin_inff() ? __builtin_inff() : far;\n"
    "    if (tc_warp_lane<S>() == 0) {\n"
    "        tc_store_two(tc_attention_word<S>(at, turn, tc_warp<S>()), far, far);\n    }\n"
    "    tc_warp_arrive<S>(tc_attention_told<S>(at));\n}\n";

/* A tile, the block's number i: ring, parity, turn and own, the parity of the group's own turn, go
 * on from the tile before. */
static const char tci_cuda_attention_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_attention_tile(unsigned at, int group, int &ring, unsigned &parity, "
    "unsigned &turn,\n                            unsigned &own, int i, tc_place p, "
    "F score, G seen) {\n"
    "    tc_attention<S> x;\n    const int slot = i % S::slots;\n"
    "    const unsigned queries = at + slot * S::queries_bytes + group * 8192;\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "    tc_attention_scores<S>(x, at, queries, ring);\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.s);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "    tc_attention_values<S>(x, p, group, 0, score, seen);\n"
    "    tc_attention_powers<S>(x, true);\n"
    "    int end = S::end(p);\n    bool asks = end < S::keys;\n"
    "    if (asks) {\n"
    "        tc_attention_tell<S>(x, at, turn, score(0.0f, S::rows_end(p.m), end));\n    }\n"
    "    tc_attention_round<S>(x);\n"
    "    for (int key = S::step;; key += S::step) {\n"
    "        if (asks && key == end) {\n            asks = false;\n"
    "            end = tc_attention_rest<S>(at, end, turn);\n        }\n"
    "        if (key >= end) {\n            break;\n        }\n"
    "        const int before = ring;\n        const unsigned old = parity;\n"
    "        if (++ring == S::rings) {\n            ring = 0;\n            parity ^= 1;\n"
    "        }\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        if (S::turns) {\n            tc_barrier_wait(tc_attention_turn<S>(at, group), own);\n"
    "            own ^= 1;\n        }\n"
    "        tc_attention_scores<S>(x, at, queries, ring);\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + before), old);\n"
    "        tc_attention_sums<S>(x, at, before, key > S::step);\n"
    "        if (S::turns) {\n"
    "            tc_warp_arrive<S>(tc_attention_turn<S>(at, (group + 1) % S::consumers));\n"
    "        }\n"
    "        tc_products_wait<1>();\n        tc_registers_here(x.s);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "        tc_attention_values<S>(x, p, group, key, score, seen);\n"
    "        tc_attention_powers<S>(x, false);\n"
    "        tc_attention_behind(x.s, key == S::step);\n        tc_registers_here(x.o);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + before));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns / 2; i++) {\n"
    "            x.o[i] *= x.scale[i / 2 % 2];\n        }\n"
    "        tc_attention_round<S>(x);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + ring), parity);\n"
    "    tc_attention_sums<S>(x, at, ring, end > S::step);\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.o);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + ring));\n"
    "    if (++ring == S::rings) {\n        ring = 0;\n        parity ^= 1;\n    }\n"
    "    float by[2];\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float sum = x.sum[r] + tc_swap(x.sum[r], 1);\n"
    "        sum += tc_swap(sum, 2);\n        by[r] = 1.0f / sum;\n"
    "        if (S::tells && (tc_warp_lane<S>() & 3) == 0) {\n"
    "            const int row = 16 * tc_warp<S>() + tc_warp_lane<S>() / 4 + 8 * r;\n"
    "            tc_store_two(at + S::staged_at + (row * S::staged_pitch + S::lanes) * "
    "S::staged_bytes, x.most[r], sum);\n        }\n    }\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::columns / 2; i++) {\n"
    "        x.o[i] *= by[i / 2 % 2];\n    }\n"
    "    tc_matrix_leave<S>(x.o, at + S::staged_at + 64 * group * S::staged_pitch * "
    "S::staged_bytes);\n    __syncwarp();\n}\n";

TCI_FN void tci_cuda_attention_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_attention_ptx);
    tci_str_add(out, tci_cuda_attention_loading);
    tci_str_add(out, tci_cuda_attention_steps);
    tci_str_add(out, tci_cuda_attention_telling);
    tci_str_add(out, tci_cuda_attention_tile);
}

/* ---- products ---- */

TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x)
{
    return tci_scratch_printf(s, "tc_multiply_held_%s_%d", tci_cuda_wgmma_type(x), x->columns);
}

TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x)
{
    const char *type = tci_cuda_wgmma_type(x);
    int n = x->columns / 2;
    tci_str_printf(out,
                   "#ifndef TC_NO_PTX\nTC_I void %s(float (&d)[%d], const unsigned *a, "
                   "unsigned long long b, int add) {\n"
                   "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n"
                   "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {",
                   name, n, n + 5, x->columns, type, type);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : "", i);
    }
    tci_str_printf(out, "}, {%%%d, %%%d, %%%d, %%%d}, %%%d, p, 1, 1, 1;\\n}\"\n        : ", n,
                   n + 1, n + 2, n + 3, n + 4);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s\"+f\"(d[%d])", i ? ", " : "", i);
    }
    tci_str_add(out, " : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), "
                     "\"r\"(add));\n}\n#endif\n");
}

/* ---- the kernel ---- */

static int tci_cuda_attention_warps(const tci_attention *x)
{
    return 4 * x->scores.consumers + 4;
}

static tci_cuda_skeleton tci_cuda_attention_describe(const tci_attention *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_attention_shared_bytes(x);
    k.block_x = x->result.row_threads;
    k.block_y = TCI_MATRIX_WARP * tci_cuda_attention_warps(x) / x->result.row_threads;
    k.n_maps = 3;
    k.maps[0] = tci_cuda_wgmma_map(&x->scores, 0);
    k.maps[1] = tci_cuda_wgmma_map(&x->scores, 1);
    tci_matrix values = x->result;
    values.n = tci_attention_value_columns(x);
    k.maps[2] = tci_cuda_wgmma_map(&values, 1);
    return k;
}

TCI_FN void tci_cuda_attention_end(tci_str *out, const char *name, int64_t n, int tile)
{
    tci_str_printf(out, "    TC_I int %s_end(int i) {\n        return ", name);
    if (n % tile == 0) {
        tci_str_add(out, "i;\n    }\n");
    } else {
        tci_str_printf(out, "i < %lld ? i : %lld;\n    }\n", (long long)n, (long long)n - 1);
    }
}

TCI_FN void tci_cuda_attention_order(tci_str *out, const tci_matrix *s, int64_t bytes, bool rises)
{
    long long tiles = (long long)s->tiles_m, all = s->tiles / tiles;
    long long heads = TCI_MIN(TCI_MAX(TCI_CUDA_ATTENTION_NEAR / bytes, 1), all);
    char last[24];
    snprintf(last, sizeof(last), "%lld - ", tiles - 1);
    tci_str_printf(out,
                   "    TC_I int order(int t) {\n"
                   "        const int first = t / %lld * %lld, in = t %% %lld;\n"
                   "        const int heads = %lld - first < %lld ? %lld - first : %lld;\n"
                   "        return (first + in %% heads) * %lld + %sin / heads;\n    }\n",
                   heads * tiles, heads, heads * tiles, all, heads, all, heads, tiles,
                   rises ? "" : last);
}

TCI_FN void tci_cuda_attention_seen(tci_str *out, const tci_attention_cut *cut, const tci_matrix *s)
{
    long long last = (long long)s->m - 1;
    tci_str_printf(out,
                   "    TC_I int seen(int row) { return %lld + %lld * row; }\n"
                   "    TC_I int steps_seen(tc_place p, int n) {\n"
                   "        const int most = seen(p.m + %d < %lld ? p.m + %d : %lld);\n"
                   "        const int steps = most > step ? (most + step - 1) / step : 1;\n"
                   "        return steps * step < n ? steps * step : n;\n    }\n",
                   (long long)cut->base + 1, (long long)cut->rows, s->rows - 1, last, s->rows - 1,
                   last);
}

TCI_FN void tci_cuda_attention_cut(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->scores;
    if (!x->cut.is_cut) {
        tci_str_add(out, "    TC_I int seen(int row) { return 0x7fffffff; }\n"
                         "    TC_I int end(tc_place p) { return keys; }\n"
                         "    TC_I int order(int t) { return t; }\n");
        return;
    }
    tci_cuda_attention_seen(out, &x->cut, s);
    tci_str_add(out, "    TC_I int end(tc_place p) { return steps_seen(p, keys); }\n");
    tci_cuda_attention_order(out, s, 2 * s->n * (s->k + x->result.n), false);
}

static void tci_cuda_attention_class(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *s = &x->scores, *r = &x->result;
    int line = 2 * TCI_MATRIX_DEPTH_STEP, slabs = tci_attention_slabs(s->k);
    long long keys_at = (long long)(x->slots * tci_attention_queries_bytes(x));
    long long values_at = keys_at + x->rings * tci_attention_keys_bytes(x);
    long long staged_at = values_at + x->rings * tci_attention_values_bytes(x);
    const char *type = tci_cuda_wgmma_type(s);
    tci_str_printf(
        out,
        "struct %s_shape {\n    enum {\n        depth = %lld, keys = %lld, step = %d, "
        "columns = %d, tiles = %lld, consumers = %d,\n        turns = %d, tells = %d, "
        "lanes = %d, slots = %d, rings = %d, stages = %d, row_threads = %d,\n"
        "        queries_bytes = %d, queries_slab = %d, queries_loaded = %d,\n"
        "        keys_at = %lld, keys_bytes = %d, keys_slab = %d, keys_loaded = %d,\n"
        "        values_at = %lld, values_bytes = %d, values_part = %d,\n"
        "        staged_at = %lld, staged_pitch = %d, staged_bytes = %d, "
        "barriers = %lld\n    };\n",
        symbol, (long long)s->k, (long long)s->n, s->columns, r->columns, (long long)s->tiles,
        s->consumers, x->turns, x->tells, r->lanes, x->slots, x->rings, 2 * x->rings + x->slots,
        r->row_threads, (int)tci_attention_queries_bytes(x), s->rows * line,
        tci_cuda_wgmma_loaded(s, 0) * line * slabs, keys_at, (int)tci_attention_keys_bytes(x),
        s->columns * line, tci_cuda_wgmma_loaded(s, 1) * line * slabs, values_at,
        (int)tci_attention_values_bytes(x), TCI_MATRIX_SUB * line * tci_attention_slabs(r->n),
        staged_at, (int)r->staged_pitch, tci_dtype_get((tc_dtype)r->staged)->bytes,
        staged_at + (long long)tci_matrix_staged_bytes(r));
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I unsigned weights(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n"
                   "    TC_I void multiply(float (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, 0, 0)(d, a, b, add);\n    }\n"
                   "    TC_I void multiply_held(float (&d)[%d], const unsigned *a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY_HELD(%s, %d)(d, a, b, add);\n    }\n",
                   r->staged == TC_F16 ? "f16" : "bf16", type, s->columns / 2, type, s->columns,
                   r->columns / 2, type, r->columns);
    tci_cuda_attention_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "keys", s->n, s->columns);
    tci_cuda_wgmma_loads(out, "load_queries", s, 0);
    tci_cuda_wgmma_loads(out, "load_keys", s, 1);
    tci_cuda_wgmma_loads(out, "load_values", r, 1);
    tci_cuda_wgmma_place(out, r);
    tci_str_add(out, "};\n");
}

/* 168 registers a thread of twelve warps, and what the loading warps do not need goes to the
 * others; of eight warps each has all that it can. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words)
{
    const tci_attention *x = l->attention;
    tci_cuda_skeleton k = tci_cuda_attention_describe(x);
    int loader = 4 * x->scores.consumers;
    bool moves = x->scores.consumers > 1;
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_attention_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, 3, n_words, tci_cuda_attention_warps(x), 1);
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_attention_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n"
                   "    if (warp >= %d) {\n%s"
                   "        if (warp == %d && tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_attention_load<%s_shape>(at, args.maps);\n        }\n"
                   "        return;\n    }\n%s",
                   symbol, symbol, loader, moves ? "        tc_registers_fewer<24>();\n" : "",
                   loader, symbol, symbol, moves ? "    tc_registers_more<240>();\n" : "");
    tci_cuda_skeleton_args(out);
}

TCI_FN void tci_cuda_attention_batch(tci_str *out, const tci_matrix *s)
{
    for (int i = 0; i < s->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", s->batch_axis[i], i);
    }
}

TCI_FN void tci_cuda_attention_tiles(tci_str *out, const char *symbol, const tci_matrix *s)
{
    tci_str_printf(out,
                   "    for (int i = 0, t; (t = tc_attention_next(i)) < %s_shape::tiles; i++) {\n"
                   "    const tc_place p = %s_shape::place(%s_shape::order(t));\n",
                   symbol, symbol, symbol);
    tci_cuda_attention_batch(out, s);
}

TCI_FN void tci_cuda_attention_rows(tci_str *out, const char *symbol, const tci_matrix *o)
{
    int groups = TCI_MATRIX_WARP / o->row_threads; /* of rows that a warp is at */
    const char *row = o->buffers < o->consumers ? "row % 64" : "row";
    tci_str_printf(out,
                   "    for (int row = rows + threadIdx.y %% %d * %d; row < rows + 16; "
                   "row += %d) {\n"
                   "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "%s_shape::staged_at + %s * %d;\n",
                   groups, o->group_rows, groups * o->group_rows, (long long)o->m, symbol, row,
                   (int)o->staged_pitch * tci_dtype_get((tc_dtype)o->staged)->bytes);
}

TCI_FN void tci_cuda_attention_score(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_matrix *s = &l->attention->scores;
    if (i == 0) {
        tci_str_add(out, "    int ring = 0;\n    unsigned parity = 0, turn = 0, own = warp < 4;\n");
        tci_cuda_attention_tiles(out, symbol, s);
    }
    tci_cuda_attention_value(out, s, i);
}

TCI_FN void tci_cuda_attention_value(tci_str *out, const tci_matrix *s, int i)
{
    tci_str_printf(out,
                   "    const auto score_%d = [&](float value, int row, int key) {\n"
                   "    void *given = &value;\n"
                   "    const tc_i64 at_%d = row, at_%d = key;\n",
                   i, s->m_axis, s->n_axis);
}

TCI_FN void tci_cuda_attention_scored(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_matrix *r = &l->attention->result;
    tci_str_add(out, "    return value;\n    };\n");
    if (i + 1 < l->n_scores) {
        return;
    }
    tci_str_printf(out,
                   "    tc_attention_tile<%s_shape>(at, warp / 4, ring, parity, turn, own, i, "
                   "p, score_0, score_%d);\n"
                   "    const int rows = 64 * (warp / 4) + 16 * (warp & 3);\n",
                   symbol, i);
    tci_cuda_attention_rows(out, symbol, r);
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", r->m_axis, r->n_axis);
}

TCI_FN void tci_cuda_attention_tail(tci_str *out)
{
    tci_str_add(out, "    }\n    __syncwarp();\n    }\n}\n");
}
