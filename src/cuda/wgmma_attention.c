/* cuda/wgmma_attention.c - holds the CUDA source of fused attention and its gradients on WGMMA: the
 * device functions and main loops that the classes of cuda/flash_attention.c instantiate, in the
 * layers of cuda/wgmma_gemm.c, whose small functions they share.
 *
 * Shared memory, from a multiple of 1024: the operands of a tile's rows, and if there is room those
 * of the next tile, a ring of steps, values of their queries, the final sums, barriers: for each
 * slot one for full and one for empty, the rows' first, and those of tci_cuda_attention_barriers.
 * Operands are in slabs of 64 elements, a row for each row or step: the layout of the first
 * products and, transposed, of the steps in the last ones (tc_attention_take), whose leading offset
 * is a slab.
 *
 * Element i of a thread's scores is of row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and step 8 * (i /
 * 4) + 2 * (lane % 4) + i % 2; four threads share a row. Pairs of them, rounded, are already the
 * registers of the last products' first operand. Sums o0 are those of score gradients and the steps
 * of the first product, o1 those of weights and the steps of the second one.
 *
 * Online chains and gradients share the names of the class, the barriers, the addresses of steps,
 * the first products and the last ones. Three functions are there twice:
 *   - the loops over steps, tc_online_tile and tc_backward_tile, which overlap differently. Online,
 *     the sums of a step are awaited after the exponentials of the next one, which do not depend on
 *     them; so the second operand has a ring slot of its own, released a step later, and is laid
 *     out in parts of 64 steps. If consumers take turns, each group of four warps issues the
 *     products of a step when the other group has issued its own, so that one computes
 *     exponentials while the other's products run. Of a gradient both first products are issued;
 *     weights are computed from the first while the second runs, the product that takes them is
 *     issued, score gradients are computed while that one runs, and theirs is issued. Only the
 *     scores of the next step wait for these. To hold these sums back as online takes the registers
 *     of a second set of pairs.
 *   - the loads, which follow the slots of these loops, and the loops over scores. One text for
 *     both gives other machine code (NVRTC 13.0, sm_90a: order of address arithmetic, registers),
 *     whose speed is not known; as they are, kernels have the machine code that they had apart.
 *
 * If keys are cut off for a tile's rows, the steps beyond the cut are skipped. Online, the score of
 * cut-off keys must be so far below the maximum of each row that its exponential is 0: each warp
 * stores its distance after the first step, and the producer and all consumers read all of these
 * after the last step before the cut. Of a gradient it must be -inf, so that their weights are 0 in
 * any row. Only steps that the cut crosses test each score.
 *
 * Invariants: a branch, whose arms both wait, keeps the compiler from waiting for sums earlier
 * (tc_attention_behind), and no register of a running product is touched: tc_registers_here, after
 * each wait, keeps the compiler from reading them before it. Each warp stores and reads rows of its
 * own, so a warp barrier is enough there. Steps past the last one are zeros in shared memory; their
 * weights are 0 too: of keys as their scores are -inf, of queries as their maximum is inf. */
#include "flash_attention.h"

/* ---- what all chains share ---- */

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
    "TC_I void tc_load_two(unsigned from, float &a, float &b) {\n"
    "    asm volatile(\"ld.shared::cta.v2.f32 {%0, %1}, [%2];\" : \"=f\"(a), \"=f\"(b) : "
    "\"r\"(from) : \"memory\");\n}\n"
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
    "#endif\n"
    "TC_I float tc_low_bf16(unsigned two) { return __int_as_float((int)(two << 16)); }\n"
    "TC_I float tc_high_bf16(unsigned two) { return __int_as_float((int)(two & 0xffff0000u)); }\n"
    "TC_I float tc_low_f16(unsigned two) { return tc_widen_f32_f16((unsigned short)two); }\n"
    "TC_I float tc_high_f16(unsigned two) { return tc_low_f16(two >> 16); }\n";

/* After the barriers of slots: of an online chain one that all consumers' warps have left their
 * distance; one for the turn of each consumer; and the distances, those of a tile while others read
 * those of the tile before. */
static const char tci_cuda_attention_barriers[] =
    "template <class S> TC_I unsigned tc_attention_told(unsigned at) {\n"
    "    return at + S::barriers + 16 * S::stages;\n}\n"
    "template <class S> TC_I unsigned tc_attention_turn(unsigned at, int group) {\n"
    "    return at + S::turns_at + 8 * group;\n}\n"
    "template <class S> TC_I unsigned tc_attention_word(unsigned at, unsigned turn, int warp) {\n"
    "    return tc_attention_turn<S>(at, S::consumers) + 8 * (turn * 4 * S::consumers + warp);\n}\n"
    "TC_I int tc_attention_next(int round) {\n"
    "    const int blocks = gridDim.x, block = blockIdx.x;\n"
    "    return round * blocks + (round % 2 ? blocks - 1 - block : block);\n}\n"
    "template <class S> TC_I int tc_attention_rest(unsigned at, int end, unsigned &turn) {\n"
    "    tc_barrier_wait(tc_attention_told<S>(at), turn);\n"
    "    for (int i = 0; i < 4 * S::consumers; i++) {\n"
    "        if (!(tc_load_one(tc_attention_word<S>(at, turn, i)) > 128.0f)) {\n"
    "            end = S::n;\n        }\n    }\n"
    "    turn ^= 1;\n    return end;\n}\n"
    "template <class S> TC_I unsigned tc_attention_step_0(unsigned at, int ring) {\n"
    "    return at + S::steps_at + ring * S::step_bytes;\n}\n"
    "template <class S> TC_I unsigned tc_attention_step_1(unsigned at, int ring) {\n"
    "    return at + S::steps_at + S::step_1 + ring * S::step_bytes_1;\n}\n"
    "template <class S> TC_I void tc_attention_begin(unsigned at) {\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), S::by_step && i >= S::slots ? 2 : 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), 4 * S::consumers);\n        }\n"
    "        if (S::online) {\n"
    "            tc_barrier_init(tc_attention_told<S>(at), 4 * S::consumers);\n        }\n"
    "        for (int i = 0; i < S::turn_barriers; i++) {\n"
    "            tc_barrier_init(tc_attention_turn<S>(at, i), 4);\n        }\n"
    "        tc_barrier_init_done();\n    }\n    __syncthreads();\n}\n";

/* The contractions of a tile and a step: products of rows and steps, sums of pairs and steps. */
static const char tci_cuda_attention_products[] =
    "template <class S, int depth>\n"
    "TC_I void tc_attention_product(float (&d)[S::step / 2], unsigned long long a, unsigned long "
    "long b) {\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < (depth + 15) / 16; i++) {\n"
    "        S::multiply(d, a + i / 4 * (S::rows_slab / 16) + i % 4 * 2,\n"
    "                    b + i / 4 * (S::step_slab / 16) + i % 4 * 2, i > 0);\n    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S, int which, int n>\n"
    "TC_I void tc_attention_take(float (&o)[n], const unsigned *pairs, unsigned steps, bool add) "
    "{\n"
    "    const unsigned long long b = tc_box(steps) + ((unsigned long long)(S::taken_slab - 8192) "
    ">> 4 << 16);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::step / 16; k++) {\n"
    "        const unsigned long long of = b + k / 4 * (S::taken_part / 16) + k % 4 * 128;\n"
    "        if constexpr (which == 0) {\n"
    "            S::multiply_0(o, pairs + 4 * k, of, add || k > 0);\n"
    "        } else {\n"
    "            S::multiply_1(o, pairs + 4 * k, of, add || k > 0);\n        }\n"
    "    }\n"
    "    tc_products_commit();\n}\n";

TCI_FN void tci_cuda_attention_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_attention_ptx);
    tci_str_add(out, tci_cuda_attention_barriers);
    tci_str_add(out, tci_cuda_attention_products);
}

/* The product of pairs in registers and steps in shared memory. */
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

/* ---- online chains ---- */

/* One thread's loads: the second operand of a step has a barrier of its own, as it is taken a step
 * later. */
static const char tci_cuda_online_loading[] =
    "template <class S> TC_I void tc_online_load(unsigned at, const tc_map *maps) {\n"
    "    int ring = 0;\n    unsigned parity = 1, turn = 0;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n"
    "        const int own = i % S::slots;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::rows_loaded);\n"
    "        for (int k = 0; k < S::depth_0; k += 64) {\n"
    "            S::load_rows_0(at + own * S::rows_bytes + k / 64 * S::rows_slab, maps, "
    "tc_full<S>(at, own), p, k);\n        }\n"
    "        int end = S::end(p, true);\n        bool asks = end < S::n;\n"
    "        for (int key = 0; key < end; key += S::step) {\n"
    "            const int slot = S::slots + ring, after = slot + S::rings;\n"
    "            p.n = key;\n"
    "            tc_barrier_wait(tc_empty<S>(at, slot), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, slot), S::step_loaded);\n"
    "            for (int k = 0; k < S::depth_0; k += 64) {\n"
    "                S::load_steps_0(at + S::steps_at + ring * S::step_bytes + "
    "k / 64 * S::step_slab, maps + 1, tc_full<S>(at, slot), p, k);\n            }\n"
    "            p.n = 0;\n"
    "            tc_barrier_wait(tc_empty<S>(at, after), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, after), S::step_bytes_1);\n"
    "            for (int k = 0; k < S::step; k += 64) {\n"
    "                S::load_steps_1(at + (S::steps_at + S::step_1) + ring * S::step_bytes_1 + "
    "k / 64 * S::taken_part, maps + 2, tc_full<S>(at, after), p, key + k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "            if (asks && key + S::step == end) {\n                asks = false;\n"
    "                end = tc_attention_rest<S>(at, end, turn);\n            }\n"
    "        }\n    }\n}\n";

/* A thread's part of a tile. most and sum: of its two rows; scale: the factor of the sums so far
 * relative to the present step. */
static const char tci_cuda_online_powers[] =
    "template <class S> struct tc_online {\n"
    "    float o1[S::columns_1 / 2], s[S::step / 2], most[2], sum[2], scale[2];\n"
    "    unsigned w[S::step / 4];\n};\n"
    "template <class S, class F>\n"
    "TC_I void tc_online_each(tc_online<S> &x, tc_place p, int group, int key, F score) {\n"
    "    const int lane = tc_warp_lane<S>(), first = key + 2 * (lane & 3);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::steps_end(first + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (S::n % S::step != 0 && key + S::step > S::n) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = first + i / 4 * 8 + i % 2 < S::n ? x.s[i] : -__builtin_inff();\n"
    "        }\n    }\n}\n"
    "template <class S, class F, class G>\n"
    "TC_I void tc_online_values(tc_online<S> &x, tc_place p, int group, int key, F score, "
    "G seen) {\n"
    "    if (S::whole(p.m + 64 * group, key)) {\n"
    "        tc_online_each<S>(x, p, group, key, seen);\n    } else {\n"
    "        tc_online_each<S>(x, p, group, key, score);\n    }\n}\n"
    "template <class S> TC_I void tc_online_powers(tc_online<S> &x, bool fresh) {\n"
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
    "template <class S> TC_I void tc_online_round(tc_online<S> &x) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 4; i++) {\n"
    "        x.w[i] = S::halves(x.s[2 * i], x.s[2 * i + 1]);\n    }\n}\n";

/* Difference between a warp's row maxima and `cut`, the score of masked elements; if `cut` is -inf,
 * masked elements are 0 however low the maxima are. */
static const char tci_cuda_online_telling[] =
    "template <class S>\n"
    "TC_I void tc_online_tell(tc_online<S> &x, unsigned at, unsigned turn, float cut) {\n"
    "    float far = fminf(x.most[0] - cut, x.most[1] - cut);\n"
    "    far = fminf(far, tc_swap(far, 4));\n    far = fminf(far, tc_swap(far, 8));\n"
    "    far = fminf(far, tc_swap(far, 16));\n"
    "    far = cut == -__builtin_inff() ? __builtin_inff() : far;\n"
    "    if (tc_warp_lane<S>() == 0) {\n"
    "        tc_store_two(tc_attention_word<S>(at, turn, tc_warp<S>()), far, far);\n    }\n"
    "    tc_warp_arrive<S>(tc_attention_told<S>(at));\n}\n";

/* A tile, the block's number i: ring, parity, turn and own, the parity of the group's own turn, go
 * on from the tile before. */
static const char tci_cuda_online_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_online_tile(unsigned at, int group, int &ring, unsigned &parity, unsigned "
    "&turn,\n                         unsigned &own, int i, tc_place p, F score, G seen) {\n"
    "    tc_online<S> x;\n"
    "    const int slot = i % S::slots;\n"
    "    const unsigned rows = at + slot * S::rows_bytes + group * 8192;\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "    tc_attention_product<S, S::depth_0>(x.s, tc_box(rows),\n"
    "                                         tc_box(tc_attention_step_0<S>(at, ring)));\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.s);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "    tc_online_values<S>(x, p, group, 0, score, seen);\n"
    "    tc_online_powers<S>(x, true);\n"
    "    int end = S::end(p, true);\n    bool asks = end < S::n;\n"
    "    if (asks) {\n"
    "        tc_online_tell<S>(x, at, turn, score(0.0f, S::rows_end(p.m), end));\n    }\n"
    "    tc_online_round<S>(x);\n"
    "    for (int n = S::step;; n += S::step) {\n"
    "        if (asks && n == end) {\n            asks = false;\n"
    "            end = tc_attention_rest<S>(at, end, turn);\n        }\n"
    "        if (n >= end) {\n            break;\n        }\n"
    "        const int before = ring;\n        const unsigned old = parity;\n"
    "        if (++ring == S::rings) {\n            ring = 0;\n            parity ^= 1;\n"
    "        }\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        if (S::turns) {\n            tc_barrier_wait(tc_attention_turn<S>(at, group), own);\n"
    "            own ^= 1;\n        }\n"
    "        tc_attention_product<S, S::depth_0>(x.s, tc_box(rows),\n"
    "                                         tc_box(tc_attention_step_0<S>(at, ring)));\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + before), old);\n"
    "        tc_attention_take<S, 1>(x.o1, x.w, tc_attention_step_1<S>(at, before), n > S::step);\n"
    "        if (S::turns) {\n"
    "            tc_warp_arrive<S>(tc_attention_turn<S>(at, (group + 1) % S::consumers));\n"
    "        }\n"
    "        tc_products_wait<1>();\n        tc_registers_here(x.s);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "        tc_online_values<S>(x, p, group, n, score, seen);\n"
    "        tc_online_powers<S>(x, false);\n"
    "        tc_attention_behind(x.s, n == S::step);\n        tc_registers_here(x.o1);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + before));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns_1 / 2; i++) {\n"
    "            x.o1[i] *= x.scale[i / 2 % 2];\n        }\n"
    "        tc_online_round<S>(x);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + ring), parity);\n"
    "    tc_attention_take<S, 1>(x.o1, x.w, tc_attention_step_1<S>(at, ring), end > S::step);\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.o1);\n"
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
    "    for (int i = 0; i < S::columns_1 / 2; i++) {\n"
    "        x.o1[i] *= by[i / 2 % 2];\n    }\n"
    "    tc_matrix_leave<S>(x.o1, at + S::staged_at + 64 * group * S::staged_pitch * "
    "S::staged_bytes);\n    __syncwarp();\n}\n";

TCI_FN void tci_cuda_online_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_online_loading);
    tci_str_add(out, tci_cuda_online_powers);
    tci_str_add(out, tci_cuda_online_telling);
    tci_str_add(out, tci_cuda_online_tile);
}

/* ---- gradients ---- */

/* One thread's loads. */
static const char tci_cuda_backward_loading[] =
    "template <class S> TC_I void tc_backward_load(unsigned at, const tc_map *maps, bool cuts) {\n"
    "    int ring = 0;\n    unsigned parity = 1;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n        const int own = i % S::slots;\n"
    "        const unsigned rows = at + own * S::rows_bytes;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::rows_loaded);\n"
    "        for (int k = 0; k < S::depth_0; k += 64) {\n"
    "            S::load_rows_0(rows + k / 64 * S::rows_slab, maps, tc_full<S>(at, own), p, k);\n"
    "        }\n"
    "        if constexpr (S::changes) {\n"
    "            for (int k = 0; k < S::depth_1; k += 64) {\n"
    "                S::load_rows_1(rows + S::rows_1 + k / 64 * S::rows_slab, maps + 3,\n"
    "                               tc_full<S>(at, own), p, k);\n            }\n        }\n"
    "        const int end = S::end(p, cuts);\n"
    "        for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "            const unsigned full = tc_full<S>(at, S::slots + ring);\n"
    "            const unsigned to = at + S::steps_at + ring * S::step_bytes;\n"
    "            p.n = n;\n"
    "            tc_barrier_wait(tc_empty<S>(at, S::slots + ring), parity);\n"
    "            tc_barrier_expect(full, S::step_bytes);\n"
    "            for (int k = 0; k < S::depth_0; k += 64) {\n"
    "                S::load_steps_0(to + k / 64 * S::step_slab, maps + 1, full, p, k);\n"
    "            }\n"
    "            for (int k = 0; k < S::depth_1; k += 64) {\n"
    "                S::load_steps_1(to + S::step_1 + k / 64 * S::step_slab, maps + "
    "2, full, p, "
    "k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

/* Values of a query alone: where those of a step are, and who evaluates them. */
static const char tci_cuda_backward_values[] =
    "template <class S> TC_I unsigned tc_backward_told(unsigned at, int ring) {\n"
    "    return at + S::values_at + ring * S::values * S::step * 4;\n}\n"
    "template <class S, class V>\n"
    "TC_I void tc_backward_own(float (&own)[S::values], V values, tc_place p, int query) {\n"
    "    const bool is = query < S::queries;\n    values(own, p, is ? query : S::queries - 1);\n"
    "    own[0] = is ? __fmaf_rn(own[0], 1.44269504f, tc_log_2(own[1])) : __builtin_inff();\n}\n"
    "template <class S, class V> TC_I void tc_backward_tell(unsigned at, V values, bool cuts) {\n"
    "    int ring = 0;\n    unsigned parity = 1;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        const tc_place p = S::place(S::order(t));\n"
    "        const int end = S::end(p, cuts);\n"
    "        for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "            const unsigned told = tc_backward_told<S>(at, ring);\n"
    "            tc_barrier_wait(tc_empty<S>(at, S::slots + ring), parity);\n"
    "            for (int j = 2 * tc_warp_lane<S>(); j < S::step; j += 64) {\n"
    "                float a[S::values], b[S::values];\n"
    "                tc_backward_own<S>(a, values, p, n + j);\n"
    "                tc_backward_own<S>(b, values, p, n + j + 1);\n"
    "                for (int k = 0; k < S::values; k++) {\n"
    "                    tc_store_two(told + 4 * (k * S::step + j), a[k], b[k]);\n"
    "                }\n"
    "            }\n"
    "            tc_warp_arrive<S>(tc_full<S>(at, S::slots + ring));\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char tci_cuda_backward_pairs[] =
    "template <class S> struct tc_backward {\n"
    "    float s[S::step / 2], g[S::step / 2], o0[S::columns_0 / 2], o1[S::columns_1 / 2];\n"
    "    unsigned w[S::step / 4], c[S::step / 4];\n    float own[2][S::values];\n};\n"
    "template <class S, class F>\n"
    "TC_I void tc_backward_scores(tc_backward<S> &x, int row, int n, F score) {\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::steps_end(n + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (!S::by_step && S::n % S::step != 0 && n > S::n - S::step) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = n + i / 4 * 8 + i % 2 < S::n ? x.s[i] : -__builtin_inff();\n        }\n"
    "    }\n"
    "}\n"
    "template <class S> TC_I void tc_backward_told_of(tc_backward<S> &x, unsigned told, int i, int "
    "k,\n                                                 float (&of)[2]) {\n"
    "    if (S::by_step) {\n"
    "        tc_load_two(told + 4 * (k * S::step + i / 4 * 8), of[0], of[1]);\n    } else {\n"
    "        of[0] = x.own[0][k];\n        of[1] = x.own[1][k];\n    }\n"
    "}\n"
    "template <class S> TC_I void tc_backward_weights(tc_backward<S> &x, unsigned told) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i += 4) {\n        float off[2];\n"
    "        tc_backward_told_of(x, told, i, 0, off);\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j++) {\n"
    "            const int q = S::by_step ? j % 2 : j / 2 % 2;\n"
    "            x.s[j] = tc_power_of_2(__fmaf_rn(x.s[j], 1.44269504f, -off[q]));\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j += 2) {\n"
    "            x.w[j / 2] = S::halves(x.s[j], x.s[j + 1]);\n            if (S::rounds) {\n"
    "                x.s[j] = S::low(x.w[j / 2]);\n"
    "                x.s[j + 1] = S::high(x.w[j / 2]);\n            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "template <class S, class G>\n"
    "TC_I void tc_backward_changes(tc_backward<S> &x, unsigned told, int row, int n, G change) {\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i += 4) {\n        float own[S::values][2];\n"
    "#pragma unroll\n"
    "        for (int k = 2; k < S::values; k++) {\n"
    "            tc_backward_told_of(x, told, i, k, own[k]);\n        }\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j++) {\n"
    "            const int q = S::by_step ? j % 2 : j / 2 % 2;\n"
    "            x.g[j] = change(x.s[j], x.g[j], own, q, rows[j / 2 % 2],\n"
    "                            S::steps_end(n + i / 4 * 8 + j % 2));\n        }\n"
    "        x.c[i / 2] = S::halves(x.g[i], x.g[i + 1]);\n"
    "        x.c[i / 2 + 1] = S::halves(x.g[i + 2], x.g[i + 3]);\n    }\n"
    "}\n";

static const char tci_cuda_backward_tile[] =
    "template <class S, class V, class F, class H, class G>\n"
    "TC_I void tc_backward_tile(tc_backward<S> &x, unsigned at, int group, int &ring,\n"
    "                           unsigned &parity, int i, tc_place p, bool cuts, V values, F "
    "score,\n                           H seen, G change) {\n"
    "    const int slot = i % S::slots, lane = tc_warp_lane<S>();\n"
    "    const int first = S::first(p, cuts), end = S::end(p, cuts);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const unsigned rows = at + slot * S::rows_bytes + group * 8192;\n    int before = 0;\n"
    "    if (!S::by_step) {\n        tc_backward_own<S>(x.own[0], values, p, row);\n"
    "        tc_backward_own<S>(x.own[1], values, p, row + 8);\n    }\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    for (int n = first; n < end; n += S::step) {\n"
    "        const unsigned steps = tc_attention_step_0<S>(at, ring);\n"
    "        const unsigned told = tc_backward_told<S>(at, ring) + 8 * (lane & 3);\n"
    "        const int step = n + 2 * (lane & 3);\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        tc_attention_product<S, S::depth_0>(x.s, tc_box(rows), tc_box(steps));\n"
    "        if constexpr (S::changes) {\n"
    "            tc_attention_product<S, S::depth_1>(x.g, tc_box(rows + S::rows_1),\n"
    "                                                 tc_box(steps + S::step_1));\n"
    "        }\n"
    "        tc_products_wait<S::changes>();\n        tc_registers_here(x.s);\n"
    "        if (n > first) {\n"
    "            tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n        }\n"
    "        if (S::whole(p.m + 64 * group, n)) {\n"
    "            tc_backward_scores<S>(x, row, step, seen);\n        } else {\n"
    "            tc_backward_scores<S>(x, row, step, score);\n        }\n"
    "        tc_backward_weights<S>(x, told);\n"
    "        if constexpr (S::changes) {\n"
    "            tc_attention_behind(x.s, n == first);\n            tc_registers_here(x.g);\n"
    "        }\n"
    "        if constexpr (S::weighs) {\n"
    "            tc_attention_take<S, 1>(x.o1, x.w, steps + S::step_1, n > first);\n"
    "        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_backward_changes<S>(x, told, row, step, change);\n"
    "            tc_attention_take<S, 0>(x.o0, x.c, steps, n > first);\n"
    "        }\n"
    "        before = ring;\n        if (++ring == S::rings) {\n"
    "            ring = 0;\n            parity ^= 1;\n        }\n"
    "    }\n"
    "    tc_products_wait<0>();\n"
    "    if constexpr (S::changes) {\n        tc_registers_here(x.o0);\n    }\n"
    "    if constexpr (S::weighs) {\n        tc_registers_here(x.o1);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n}\n";

TCI_FN void tci_cuda_backward_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_backward_loading);
    tci_str_add(out, tci_cuda_backward_values);
    tci_str_add(out, tci_cuda_backward_pairs);
    tci_str_add(out, tci_cuda_backward_tile);
}
