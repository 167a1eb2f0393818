/* cuda/wgmma_attention_backward.c - writes the CUDA source of the attention gradients on WGMMA: the
 * main loop, layered as in cuda/wgmma_gemm.c, with the PTX wrappers of cuda/wgmma_attention.c.
 *
 * Shared memory, from a multiple of 1024: both operands of a tile's rows, and if there is room of
 * the next one's, a ring of both operands of steps, their per-query values, the final accumulators,
 * mbarriers: a full and an empty one per slot (the row tiles' first), and one per consumer that
 * orders the stores if consumers store their accumulators in turn. All operands are in slabs of 64
 * elements, a row for each row or step: the layout of the first products and, transposed, of the
 * steps in the last ones, whose leading offset is a slab.
 *
 * Element i of a thread's scores is of row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and step 8 * (i
 * / 4) + 2 * (lane % 4) + i % 2. Pairs of them, rounded, are already the registers of the last
 * products' first operand.
 *
 * A step: both first products are issued; weights are computed from the first while the second
 * runs, the product that takes them is issued, score gradients are computed while that one runs,
 * and theirs is issued. Only the scores of the next step wait for these. Two consumers keep the
 * tensor cores busy: while one computes scores the other multiplies. Accumulators o0 are the
 * products of score gradients and the steps of the first product, o1 those of weights and the steps
 * of the second one. `changes` and `weighs` say which of them exist; without `changes` the second
 * product is omitted and has no rows.
 *
 * If keys are masked out with the score -inf, so that their weights are 0 in any row, the steps
 * that no row of a tile sees are skipped. Tiles are assigned longest first.
 *
 * Invariants: as in cuda/wgmma_attention.c. Steps past the last one are zeros in shared memory;
 * their weights are 0 too: of keys as their scores are -inf, of queries as their maximum is inf. */
#include "wgmma_attention_backward.h"

#include <string.h>

/* ---- the prelude ---- */

static const char tci_cuda_backward_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "TC_I void tc_load_two(unsigned from, float &a, float &b) {\n"
    "    asm volatile(\"ld.shared::cta.v2.f32 {%0, %1}, [%2];\" : \"=f\"(a), \"=f\"(b) : "
    "\"r\"(from) : \"memory\");\n}\n"
    "#endif\n"
    "TC_I float tc_low_bf16(unsigned two) { return __int_as_float((int)(two << 16)); }\n"
    "TC_I float tc_high_bf16(unsigned two) { return __int_as_float((int)(two & 0xffff0000u)); }\n"
    "TC_I float tc_low_f16(unsigned two) { return tc_widen_f32_f16((unsigned short)two); }\n"
    "TC_I float tc_high_f16(unsigned two) { return tc_low_f16(two >> 16); }\n";

static const char tci_cuda_backward_loading[] =
    "template <class S> TC_I unsigned tc_backward_told(unsigned at, int ring) {\n"
    "    return at + S::values_at + ring * S::values * S::step * 4;\n}\n"
    "template <class S> TC_I unsigned tc_backward_turn(unsigned at, int group) {\n"
    "    return at + S::barriers + 16 * S::stages + 8 * group;\n}\n"
    "template <class S> TC_I void tc_backward_begin(unsigned at) {\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), S::by_step && i >= S::slots ? 2 : 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), 4 * S::consumers);\n        }\n"
    "        for (int i = 0; i < 2 * S::turns; i++) {\n"
    "            tc_barrier_init(tc_backward_turn<S>(at, i), 4);\n        }\n"
    "        tc_barrier_init_done();\n    }\n"
    "    __syncthreads();\n}\n"
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
    "                S::load_steps_1(to + S::step_1 + k / 64 * S::step_slab, maps + 2, full, p, "
    "k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char tci_cuda_backward_values[] =
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
    "template <class S, int depth>\n"
    "TC_I void tc_backward_product(float (&d)[S::step / 2], unsigned rows, unsigned steps) {\n"
    "    const unsigned long long a = tc_box(rows), b = tc_box(steps);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < (depth + 15) / 16; i++) {\n"
    "        S::multiply(d, a + i / 4 * (S::rows_slab / 16) + i % 4 * 2,\n"
    "                    b + i / 4 * (S::step_slab / 16) + i % 4 * 2, i > 0);\n    }\n"
    "    tc_products_commit();\n}\n"
    "TC_I unsigned long long tc_backward_turned(unsigned steps, int slab) {\n"
    "    return tc_box(steps) + ((unsigned long long)(slab - 8192) >> 4 << 16);\n}\n"
    "template <class S, int which>\n"
    "TC_I void tc_backward_take(tc_backward<S> &x, unsigned steps, bool add) {\n"
    "    const unsigned long long b = tc_backward_turned(steps, S::step_slab);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::step / 16; k++) {\n"
    "        if constexpr (which == 0) {\n"
    "            S::multiply_0(x.o0, x.c + 4 * k, b + k * 128, add || k > 0);\n"
    "        } else {\n"
    "            S::multiply_1(x.o1, x.w + 4 * k, b + k * 128, add || k > 0);\n        }\n"
    "    }\n"
    "    tc_products_commit();\n}\n"
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
    "        const unsigned steps = at + S::steps_at + ring * S::step_bytes;\n"
    "        const unsigned told = tc_backward_told<S>(at, ring) + 8 * (lane & 3);\n"
    "        const int step = n + 2 * (lane & 3);\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        tc_backward_product<S, S::depth_0>(x.s, rows, steps);\n"
    "        if constexpr (S::changes) {\n"
    "            tc_backward_product<S, S::depth_1>(x.g, rows + S::rows_1, steps + S::step_1);\n"
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
    "            tc_backward_take<S, 1>(x, steps + S::step_1, n > first);\n        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_backward_changes<S>(x, told, row, step, change);\n"
    "            tc_backward_take<S, 0>(x, steps, n > first);\n        }\n"
    "        before = ring;\n        if (++ring == S::rings) {\n"
    "            ring = 0;\n            parity ^= 1;\n        }\n"
    "    }\n"
    "    tc_products_wait<0>();\n"
    "    if constexpr (S::changes) {\n        tc_registers_here(x.o0);\n    }\n"
    "    if constexpr (S::weighs) {\n        tc_registers_here(x.o1);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n}\n";

TCI_FN void tci_cuda_attn_grad_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_backward_ptx);
    tci_str_add(out, tci_cuda_backward_loading);
    tci_str_add(out, tci_cuda_backward_values);
    tci_str_add(out, tci_cuda_backward_pairs);
    tci_str_add(out, tci_cuda_backward_tile);
}

/* ---- the kernel ---- */

static int tci_cuda_attn_grad_warps(const tci_attn_grad *x)
{
    return 4 * x->in[0].consumers + 4;
}

/* Of steps all are loaded that a box has, zeros after the last one: a product takes them. */
static tci_cuda_skeleton tci_cuda_attn_grad_describe(const tci_attn_grad *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_attn_grad_shared_bytes(x);
    k.block_x = x->out[0].row_threads;
    k.block_y = TCI_MATRIX_WARP * tci_cuda_attn_grad_warps(x) / x->out[0].row_threads;
    k.n_maps = 2 + x->n_in;
    for (int i = 0; i < 2; i++) {
        if (i < x->n_in) {
            k.maps[3 * i] = tci_cuda_wgmma_map(&x->in[i], 0);
        }
        k.maps[1 + i] = tci_cuda_wgmma_map(&x->in[i], 1);
        k.maps[1 + i].box[1] = x->in[i].columns;
    }
    return k;
}

TCI_FN void tci_cuda_attn_grad_sums(tci_str *out, const tci_attn_grad *x)
{
    int columns[2] = {TCI_BACKWARD_ROUND, TCI_BACKWARD_ROUND};
    bool weighs = false;
    for (int i = 0; i < x->n_out; i++) {
        columns[tci_attn_grad_taken(x, i)] = x->out[i].columns;
        weighs |= tci_attn_grad_taken(x, i) == 1;
    }
    tci_str_printf(out, "    enum { changes = %d, weighs = %d, columns_0 = %d, columns_1 = %d };\n",
                   x->n_in > 1, weighs, columns[0], columns[1]);
}

static void tci_cuda_attn_grad_numbers(tci_str *out, const char *symbol, const tci_attn_grad *x)
{
    const tci_matrix *s = &x->in[0], *g = &x->in[1];
    int line = 2 * TCI_MATRIX_DEPTH_STEP, slabs = tci_attention_slabs(s->k);
    long long steps_at = (long long)(x->slots * tci_attn_grad_rows_bytes(x));
    long long values_at = steps_at + x->rings * tci_attn_grad_step_bytes(x);
    long long staged_at = values_at + x->rings * tci_attn_grad_values_bytes(x);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        depth_0 = %lld, depth_1 = %lld, "
                   "n = %lld, step = %d,\n"
                   "        by_step = %d, rounds = %d, values = %d, queries = %lld,\n"
                   "        tiles = %lld, consumers = %d, turns = %d, slots = %d, rings = %d, "
                   "stages = %d, row_threads = %d,\n"
                   "        rows_bytes = %d, rows_1 = %d, rows_slab = %d, rows_loaded = %d,\n"
                   "        steps_at = %lld, step_bytes = %d, step_1 = %d, step_slab = %d,\n"
                   "        values_at = %lld, staged_at = %lld, barriers = %lld\n    };\n",
                   symbol, (long long)s->k, (long long)g->k, (long long)s->n, s->columns,
                   x->by_step, x->rounds, x->n_values, (long long)(x->by_step ? s->n : s->m),
                   (long long)s->tiles, s->consumers, tci_attn_grad_turns(x), x->slots, x->rings,
                   x->slots + x->rings, x->out[0].row_threads, (int)tci_attn_grad_rows_bytes(x),
                   s->rows * line * slabs, s->rows * line,
                   tci_cuda_wgmma_loaded(s, 0) * (int)(tci_attn_grad_rows_bytes(x) / s->rows),
                   steps_at, (int)tci_attn_grad_step_bytes(x), s->columns * line * slabs,
                   s->columns * line, values_at, staged_at,
                   staged_at + (long long)tci_attn_grad_staged_bytes(x));
}

static void tci_cuda_attn_grad_products(tci_str *out, const tci_attn_grad *x)
{
    const char *type = tci_cuda_wgmma_type(&x->in[0]);
    tci_str_printf(out,
                   "    TC_I unsigned halves(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n"
                   "    TC_I float low(unsigned two) { return tc_low_%s(two); }\n"
                   "    TC_I float high(unsigned two) { return tc_high_%s(two); }\n"
                   "    TC_I void multiply(float (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, 0, 0)(d, a, b, add);\n    }\n",
                   type, type, type, x->in[0].columns / 2, type, x->in[0].columns);
    for (int i = 0; i < x->n_out; i++) {
        tci_str_printf(out,
                       "    TC_I void multiply_%d(float (&d)[%d], const unsigned *a, "
                       "unsigned long long b, int add) {\n"
                       "        TC_MULTIPLY_HELD(%s, %d)(d, a, b, add);\n    }\n",
                       tci_attn_grad_taken(x, i), x->out[i].columns / 2, type, x->out[i].columns);
    }
}

TCI_FN void tci_cuda_attn_grad_cut(tci_str *out, const tci_attn_grad *x)
{
    const tci_matrix *s = &x->in[0];
    if (!x->cut.is_cut) {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                         "    TC_I bool whole(int row, int step) { return true; }\n"
                         "    TC_I int order(int t) { return t; }\n");
        return;
    }
    tci_cuda_attention_seen(out, &x->cut, s);
    if (x->by_step) {
        tci_str_printf(out,
                       "    TC_I int first(tc_place p, bool cuts) {\n"
                       "        const int last = (n - 1) / step * step;\n"
                       "        const int query = %d * (p.m - %lld), at = query > 0 ? "
                       "query / step * step : 0;\n"
                       "        return !cuts ? 0 : at < last ? at : last;\n    }\n"
                       "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                       "    TC_I bool whole(int row, int at) { return row + 64 <= seen(at); }\n",
                       x->cut.rows != 0, (long long)x->cut.base);
    } else {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) {\n"
                         "        return cuts ? steps_seen(p, n) : n;\n    }\n"
                         "    TC_I bool whole(int row, int at) { return at + step <= seen(row); "
                         "}\n");
    }
    tci_cuda_attention_order(out, s, 2 * s->n * (s->k + x->in[1].k), x->by_step);
}

static void tci_cuda_attn_grad_class(tci_str *out, const char *symbol, const tci_attn_grad *x)
{
    const tci_matrix *s = &x->in[0];
    tci_cuda_attn_grad_numbers(out, symbol, x);
    tci_cuda_attn_grad_sums(out, x);
    tci_cuda_attn_grad_products(out, x);
    tci_cuda_attn_grad_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    tci_cuda_wgmma_loads(out, "load_rows_0", s, 0);
    if (x->n_in > 1) {
        tci_cuda_wgmma_loads(out, "load_rows_1", &x->in[1], 0);
    }
    tci_cuda_wgmma_loads(out, "load_steps_0", s, 1);
    tci_cuda_wgmma_loads(out, "load_steps_1", &x->in[1], 1);
    tci_cuda_wgmma_place(out, &x->out[0]);
    tci_str_add(out, "};\n");
    for (int i = 0; i < x->n_out; i++) {
        const tci_matrix *o = &x->out[i];
        tci_str_printf(out,
                       "struct %s_left_%d {\n    enum { columns = %d, row_threads = %d, "
                       "staged_pitch = %d, staged_bytes = %d };\n"
                       "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, "
                       "high); }\n};\n",
                       symbol, tci_attn_grad_taken(x, i), o->columns, o->row_threads,
                       (int)o->staged_pitch, tci_dtype_get((tc_dtype)o->staged)->bytes,
                       o->staged == TC_F16 ? "f16" : "bf16");
    }
}

TCI_FN void tci_cuda_attn_grad_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words)
{
    const tci_attn_grad *x = l->backward;
    tci_cuda_skeleton k = tci_cuda_attn_grad_describe(x);
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_attn_grad_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, (int)k.n_maps, n_words, tci_cuda_attn_grad_warps(x), 1);
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_backward_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n",
                   symbol, symbol);
    tci_cuda_skeleton_args(out);
}

/* ---- its blocks ---- */

TCI_FN int tci_cuda_attn_grad_block(const tci_attn_grad *x, int i)
{
    bool whole = !x->cut.is_cut; /* the blocks of a cut are not there */
    return i + (whole && i > TCI_CUDA_BACKWARD_VALUES) + (whole && i + 1 > TCI_CUDA_BACKWARD_SCORE);
}

/* Of a pair of a row and a step. */
static void tci_cuda_attn_grad_open_pair(tci_str *out, const tci_attn_grad *x, int block)
{
    const tci_matrix *s = &x->in[0];
    if (block == TCI_CUDA_BACKWARD_CHANGE) {
        tci_str_add(out, "    const auto change = [&](float weight, float value, const auto &own, "
                         "int q, int row, int step) {\n"
                         "    float all[] = {weight, value");
        for (int i = 2; i < x->n_values; i++) {
            tci_str_printf(out, ", own[%d][q]", i);
        }
        tci_str_add(out, "};\n    void *given = all;\n");
    } else {
        tci_str_printf(out,
                       "    const auto score_%d = [&](float value, int row, int step) {\n"
                       "    void *given = &value;\n",
                       block - TCI_CUDA_BACKWARD_SCORE);
    }
    tci_str_printf(out, "    const tc_i64 at_%d = row, at_%d = step;\n", s->m_axis, s->n_axis);
}

TCI_FN void tci_cuda_attn_grad_open(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attn_grad *x = l->backward;
    const tci_matrix *s = &x->in[0], *o = &x->out[1];
    int block = tci_cuda_attn_grad_block(x, i);
    (void)symbol;
    if (block == TCI_CUDA_BACKWARD_VALUES) {
        tci_str_add(out, "    const auto values = [&](float *own, tc_place p, int query) {\n"
                         "    void *given = own;\n");
        tci_cuda_attention_batch(out, s);
        tci_str_printf(out, "    const tc_i64 at_%d = query;\n",
                       x->by_step ? s->n_axis : s->m_axis);
    } else if (block == TCI_CUDA_BACKWARD_OFF) {
        tci_str_add(out, "    float off;\n    {\n    void *given = &off;\n");
    } else if (block == TCI_CUDA_BACKWARD_ROWS) {
        tci_str_printf(out,
                       "    const auto rows_1 = [&](int row, void *given) {\n"
                       "    const tc_i64 at_%d = row, at_%d = 0;\n",
                       o->m_axis, o->n_axis);
    } else {
        tci_cuda_attn_grad_open_pair(out, x, block);
    }
}

/* The parts that the warps play, and the loop over tiles up to what the blocks for pairs need. All
 * warps know whether steps are left out. */
static void tci_cuda_attn_grad_split(tci_str *out, const char *symbol, const tci_attn_grad *x)
{
    int loader = 4 * x->in[0].consumers;
    bool moves = x->in[0].consumers > 1;
    tci_str_printf(out,
                   "    const bool cuts = %s;\n"
                   "    if (warp >= %d) {\n%s"
                   "        if (warp == %d && tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_backward_load<%s_shape>(at, args.maps, cuts);\n        }\n",
                   x->cut.is_cut ? "off == -__builtin_inff()" : "false", loader,
                   moves ? "        tc_registers_fewer<40>();\n" : "", loader, symbol, symbol);
    if (x->by_step) {
        tci_str_printf(out,
                       "        if (warp == %d) {\n"
                       "            tc_backward_tell<%s_shape>(at, values, cuts);\n        }\n",
                       loader + 1, symbol);
    }
    tci_str_printf(out,
                   "        return;\n    }\n%s"
                   "    int ring = 0;\n    unsigned parity = 0;\n",
                   moves ? "    tc_registers_more<232>();\n" : "");
    tci_cuda_attention_tiles(out, symbol, &x->in[0]);
}

/* Stores the accumulators of last product i, and takes a warp's rows of them up to the epilogue
 * slot. */
static void tci_cuda_attn_grad_rows(tci_str *out, const char *symbol, const tci_attn_grad *x, int i)
{
    const tci_matrix *o = &x->out[i];
    int taken = tci_attn_grad_taken(x, i), bytes = tci_dtype_get((tc_dtype)o->staged)->bytes;
    tci_str_printf(out,
                   "    tc_matrix_leave<%s_left_%d>(x.o%d, at + %s_shape::staged_at + "
                   "warp / 4 * %d);\n    __syncwarp();\n",
                   symbol, taken, taken, symbol,
                   tci_attn_grad_turns(x) ? 0 : TCI_MATRIX_SUB * (int)o->staged_pitch * bytes);
    tci_cuda_attention_rows(out, symbol, o);
}

static void tci_cuda_attn_grad_run(tci_str *out, const char *symbol, const tci_attn_grad *x)
{
    const tci_matrix *o = &x->out[0];
    tci_str_printf(out,
                   "    tc_backward<%s_shape> x;\n"
                   "    tc_backward_tile<%s_shape>(x, at, warp / 4, ring, parity, i, p, cuts, "
                   "values, score_0, score_%d, %s);\n"
                   "    const int rows = 64 * (warp / 4) + 16 * (warp & 3);\n",
                   symbol, symbol, x->cut.is_cut, x->n_in > 1 ? "change" : "0");
    if (tci_attn_grad_turns(x)) {
        tci_str_printf(out,
                       "    tc_barrier_wait(tc_backward_turn<%s_shape>(at, warp / 4), "
                       "(i + 1 + warp / 4) %% 2);\n",
                       symbol);
    }
    if (x->n_out > 1) {
        tci_cuda_attn_grad_rows(out, symbol, x, 1);
        tci_str_add(out, "    rows_1(p.m + row, given);\n    }\n    __syncwarp();\n");
    }
    tci_cuda_attn_grad_rows(out, symbol, x, 0);
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", o->m_axis, o->n_axis);
}

TCI_FN void tci_cuda_attn_grad_end(tci_str *out, const tci_attn_grad *x, int i)
{
    int block = tci_cuda_attn_grad_block(x, i);
    tci_str_add(out, block == TCI_CUDA_BACKWARD_CHANGE ? "    return all[0];\n    };\n"
                     : block == TCI_CUDA_BACKWARD_OFF  ? "    }\n"
                     : block == TCI_CUDA_BACKWARD_SCORE || block == TCI_CUDA_BACKWARD_SEEN
                         ? "    return value;\n    };\n"
                         : "    };\n");
}

TCI_FN void tci_cuda_attn_grad_close(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attn_grad *x = l->backward;
    tci_cuda_attn_grad_end(out, x, i);
    if (tci_cuda_attn_grad_block(x, i) ==
        (x->cut.is_cut ? TCI_CUDA_BACKWARD_OFF : TCI_CUDA_BACKWARD_VALUES)) {
        tci_cuda_attn_grad_split(out, symbol, x);
    }
    if (i + 1 == l->n_scores) {
        tci_cuda_attn_grad_run(out, symbol, x);
    }
}

TCI_FN void tci_cuda_attn_grad_tail(tci_str *out, const char *symbol, const tci_loop *l)
{
    tci_str_add(out, "    }\n    __syncwarp();\n");
    if (tci_attn_grad_turns(l->backward)) {
        tci_str_printf(out,
                       "    tc_warp_arrive<%s_shape>(tc_backward_turn<%s_shape>(at, "
                       "1 - warp / 4));\n",
                       symbol, symbol);
    }
    tci_str_add(out, "    }\n}\n");
}
