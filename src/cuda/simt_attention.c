/* cuda/simt_attention.c - writes the CUDA source of fused attention, forward and backward, on CUDA
 * cores: shared-memory layout and main loops.
 *
 * Shared memory, all as f32: for attention the queries of a tile, a block of keys, a block of
 * values, the tile x block attention weights, and a word for each half warp; for its gradients both
 * operands of the rows, both of a block, and the tile x block scores. Each row is padded by four
 * elements, so that 16 bytes of neighbouring rows are in different banks. The final accumulators
 * reuse this memory.
 *
 * Half a warp has rows group + 8 r of a tile; each of its lanes has elements lane + 16 j of a
 * block, and for each 16 W columns of a result W contiguous ones. So a product of four elements
 * along a row takes one load for a row, which the half warp shares, and one for an element; and
 * weights that lanes store in shared memory are read by lanes of the same warp.
 *
 * Keys of the next block are loaded while weights are computed and summed, its values while its
 * scores are computed. If a causal mask hides keys from a tile's queries, the fully masked blocks
 * are skipped as in cuda/wgmma_attention.c: each half warp reports whether the masked scores are
 * far enough below the maximum of its rows.
 *
 * Invariants: a barrier precedes the first read of data that all threads have copied, and the next
 * copy to memory that all have read. Missing rows and keys are zeros, and their weights are 0, or
 * are never stored. */
#include "simt_attention.h"

#include <string.h>

/* ---- the prelude ---- */

/* Asynchronous copies of 16 bytes, in groups; older GPUs wait for each. */
static const char tci_cuda_flash_copies[] =
    "#ifndef TC_NO_PTX\n#if __CUDA_ARCH__ >= 800\n"
    "TC_I void tc_copy_four(float *to, const float *from, bool is) {\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: "
    "\"r\"(tc_shared_at(to)), \"l\"(from), \"r\"(is ? 16 : 0) : \"memory\");\n}\n"
    "TC_I void tc_copies_commit() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }\n"
    "template <int n> TC_I void tc_copies_wait() {\n"
    "    asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(n) : \"memory\");\n}\n"
    "#else\n"
    "TC_I void tc_copy_four(float *to, const float *from, bool is) {\n"
    "    *(tc_pack<float, 4> *)to = is ? *(const tc_pack<float, 4> *)from : "
    "tc_pack<float, 4>{{0, 0, 0, 0}};\n}\n"
    "TC_I void tc_copies_commit() {}\n"
    "template <int n> TC_I void tc_copies_wait() {}\n"
    "#endif\n#endif\n";

/* Rows of `size` elements, n of which exist, as rows of `width`. whole: four at once start at a
 * multiple of four; turned: rows are contiguous. */
static const char tci_cuda_flash_loading[] =
    "template <class S> TC_I int tc_flash_thread() {\n"
    "    return threadIdx.y * S::row_threads + threadIdx.x;\n}\n"
    "TC_I float tc_flash_max(float x) {\n"
    "    for (int i = 1; i < 16; i *= 2) {\n        x = fmaxf(x, tc_swap(x, i));\n    }\n"
    "    return x;\n}\n"
    "TC_I float tc_flash_sum(float x) {\n"
    "    for (int i = 1; i < 16; i *= 2) {\n        x += tc_swap(x, i);\n    }\n"
    "    return x;\n}\n"
    "template <class S, bool whole, int size>\n"
    "TC_I void tc_flash_four(float *to, const float *from, tc_i64 summed, int k, bool is) {\n"
    "    if (whole) {\n"
    "        tc_copy_four(to, from + (k < size ? k : 0), is && k < size);\n        return;\n    }\n"
    "    tc_pack<float, 4> four;\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "        four.e[j] = is && k + j < size ? from[(k + j) * summed] : 0;\n    }\n"
    "    *(tc_pack<float, 4> *)to = four;\n}\n"
    "template <class S, bool whole, int size>\n"
    "TC_I void tc_flash_four(float *to, const unsigned short *from, tc_i64 summed, int k, bool is) "
    "{\n"
    "    tc_pack<float, 4> four;\n    tc_pack<unsigned short, 4> halves = {{0, 0, 0, 0}};\n"
    "    if (whole && is && k < size) {\n"
    "        halves = *(const tc_pack<unsigned short, 4> *)(from + k);\n    }\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "        if (!whole && is && k + j < size) {\n"
    "            halves.e[j] = from[(k + j) * summed];\n        }\n"
    "        four.e[j] = S::wide(halves.e[j]);\n    }\n"
    "    *(tc_pack<float, 4> *)to = four;\n}\n"
    "template <class S, int rows, int size, int width, bool whole, bool turned, class E>\n"
    "TC_I void tc_flash_load(float *to, const E *from, tc_i64 own, tc_i64 summed, int n) {\n"
    "    const int fours = width / 4;\n"
    "#pragma unroll 8\n"
    "    for (int i = tc_flash_thread<S>(); i < rows * fours; i += S::threads) {\n"
    "        const int row = turned ? i % rows : i / fours, k = 4 * (turned ? i / rows : i % "
    "fours);\n"
    "        tc_flash_four<S, whole, size>(to + row * (width + 4) + k, from + (row < n ? row : 0) "
    "* own,\n                                      summed, k, row < n);\n    }\n}\n";

/* Pairs s += rows steps, over `width` elements of both; and accumulators o += pairs steps. */
static const char tci_cuda_flash_products[] =
    "template <class S, int width>\n"
    "TC_I void tc_flash_pairs(float (&s)[S::points][S::each], const float *rows, const float "
    "*steps) {\n"
    "    rows += tc_flash_thread<S>() / 16 * (width + 4);\n"
    "    steps += tc_flash_thread<S>() % 16 * (width + 4);\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        s[i / S::each][i % S::each] = 0;\n    }\n"
    "#pragma unroll 2\n"
    "    for (int k = 0; k < width; k += 4) {\n        tc_pack<float, 4> b[S::each];\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < S::each; j++) {\n"
    "            b[j] = *(const tc_pack<float, 4> *)(steps + 16 * j * (width + 4) + k);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::points; r++) {\n"
    "            const tc_pack<float, 4> a = *(const tc_pack<float, 4> *)(rows + 8 * r * (width + "
    "4) + k);\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < 4 * S::each; i++) {\n"
    "                const int j = i % S::each, e = i / S::each;\n"
    "                s[r][j] = __fmaf_rn(a.e[e], b[j].e[e], s[r][j]);\n            }\n"
    "        }\n    }\n}\n"
    "template <class S, int columns>\n"
    "TC_I void tc_flash_sums(float (&o)[S::points][columns / 16], const float *pairs, const float "
    "*steps) {\n"
    "    const int wide = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;\n"
    "    pairs += tc_flash_thread<S>() / 16 * (S::step + 4);\n"
    "    steps += tc_flash_thread<S>() % 16 * wide;\n"
    "#pragma unroll 1\n"
    "    for (int n = 0; n < S::step; n += 4) {\n        tc_pack<float, 4> a[S::points];\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::points; r++) {\n"
    "            a[r] = *(const tc_pack<float, 4> *)(pairs + 8 * r * (S::step + 4) + n);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 4 * (columns / 16 / wide); i++) {\n"
    "            const int e = i % 4, g = i / 4;\n"
    "            const tc_pack<float, wide> b = *(const tc_pack<float, wide> *)(steps + (n + e) * "
    "(columns + 4) + g * 16 * wide);\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < S::points * wide; j++) {\n"
    "                float &to = o[j / wide][g * wide + j % wide];\n"
    "                to = __fmaf_rn(a[j / wide].e[e], b.e[j % wide], to);\n            }\n"
    "        }\n    }\n}\n"
    "template <class S, int columns>\n"
    "TC_I void tc_flash_leave(const float (&o)[S::points][columns / 16], float *to, int pitch) {\n"
    "    const int wide = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;\n"
    "    to += tc_flash_thread<S>() / 16 * pitch + tc_flash_thread<S>() % 16 * wide;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * (columns / 16); i++) {\n"
    "        const int r = i / (columns / 16), c = i % (columns / 16);\n"
    "        to[8 * r * pitch + c / wide * 16 * wide + c % wide] = o[r][c];\n    }\n}\n"
    "template <class S>\n"
    "TC_I void tc_flash_tell(const float (&s)[S::points][S::each], float *pairs) {\n"
    "    pairs += tc_flash_thread<S>() / 16 * (S::step + 4) + tc_flash_thread<S>() % 16;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        pairs[8 * (i / S::each) * (S::step + 4) + 16 * (i % S::each)] =\n"
    "            S::round(s[i / S::each][i % S::each]);\n    }\n    __syncwarp();\n}\n"
    "template <class S, class F>\n"
    "TC_I void tc_flash_scores(float (&s)[S::points][S::each], int row, int n, F score) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        float &to = s[i / S::each][i % S::each];\n"
    "        to = score(to, S::rows_end(row + 8 * (i / S::each)), S::steps_end(n + 16 * (i % "
    "S::each)));\n    }\n}\n";

static const char tci_cuda_flash_powers[] =
    "template <class S> struct tc_flash {\n"
    "    float o[S::points][S::columns / 16], s[S::points][S::each], most[S::points], "
    "sum[S::points];\n};\n"
    "template <class S> TC_I void tc_flash_powers(tc_flash<S> &x) {\n"
    "    const float log2e = 1.44269504f;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n        float most = x.s[r][0], sum = 0;\n"
    "#pragma unroll\n"
    "        for (int j = 1; j < S::each; j++) {\n"
    "            most = fmaxf(most, x.s[r][j]);\n        }\n"
    "        const float old = x.most[r];\n"
    "        x.most[r] = fmaxf(old, tc_flash_max(most));\n"
    "        const float off = x.most[r] == -__builtin_inff() ? 0.0f : x.most[r];\n"
    "        const float scale = tc_power_of_2((old - off) * log2e);\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < S::each; j++) {\n"
    "            x.s[r][j] = tc_power_of_2((x.s[r][j] - off) * log2e);\n"
    "            sum += x.s[r][j];\n        }\n"
    "        x.sum[r] = __fmaf_rn(x.sum[r], scale, sum);\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns / 16; c++) {\n            x.o[r][c] *= scale;\n"
    "        }\n    }\n}\n"
    "template <class S> TC_I bool tc_flash_is_far(tc_flash<S> &x, float *words, float cut) {\n"
    "    float far = __builtin_inff();\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        far = fminf(far, cut == -__builtin_inff() ? far : x.most[r] - cut);\n    }\n"
    "    if (tc_flash_thread<S>() % 16 == 0) {\n"
    "        words[tc_flash_thread<S>() / 16] = far;\n    }\n    __syncthreads();\n"
    "    bool all = true;\n"
    "    for (int i = 0; i < 8; i++) {\n        all = all && words[i] > 128.0f;\n    }\n"
    "    return all;\n}\n";

static const char tci_cuda_flash_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_flash_tile(tc_flash<S> &x, float *at, void *const *bufs, tc_place p, F score, G "
    "seen) {\n"
    "    const int row = p.m + tc_flash_thread<S>() / 16, lane = tc_flash_thread<S>() % 16;\n"
    "    int end = S::end(p);\n    bool asks = end < S::keys;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        x.most[r] = -__builtin_inff();\n        x.sum[r] = 0;\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns / 16; c++) {\n            x.o[r][c] = 0;\n        }\n"
    "    }\n"
    "    S::load_queries(at, bufs, p, p.m);\n"
    "    S::load_keys(at + S::keys_at, bufs, p, 0);\n    tc_copies_commit();\n"
    "    S::load_values(at + S::values_at, bufs, p, 0);\n    tc_copies_commit();\n"
    "    for (int key = 0;;) {\n"
    "        tc_copies_wait<1>();\n        __syncthreads();\n"
    "        tc_flash_pairs<S, S::width>(x.s, at, at + S::keys_at);\n"
    "        __syncthreads();\n"
    "        if (key + S::step < end) {\n"
    "            S::load_keys(at + S::keys_at, bufs, p, key + S::step);\n        }\n"
    "        tc_copies_commit();\n"
    "        if (key + S::step <= S::seen(p.m)) {\n"
    "            tc_flash_scores<S>(x.s, row, key + lane, seen);\n        } else {\n"
    "            tc_flash_scores<S>(x.s, row, key + lane, score);\n        }\n"
    "        if (S::keys % S::step != 0 && key + S::step > S::keys) {\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < S::points * S::each; i++) {\n"
    "                if (key + lane + 16 * (i % S::each) >= S::keys) {\n"
    "                    x.s[i / S::each][i % S::each] = -__builtin_inff();\n                }\n"
    "            }\n        }\n"
    "        tc_flash_powers<S>(x);\n"
    "        tc_flash_tell<S>(x.s, at + S::pairs_at);\n"
    "        tc_copies_wait<1>();\n        __syncthreads();\n"
    "        tc_flash_sums<S, S::columns>(x.o, at + S::pairs_at, at + S::values_at);\n"
    "        __syncthreads();\n        key += S::step;\n"
    "        if (key >= end) {\n"
    "            if (!asks || tc_flash_is_far<S>(x, at + S::words_at, score(0.0f, "
    "S::rows_end(p.m), end))) {\n                break;\n            }\n"
    "            asks = false;\n            end = S::keys;\n"
    "            S::load_keys(at + S::keys_at, bufs, p, key);\n            tc_copies_commit();\n"
    "        }\n"
    "        S::load_values(at + S::values_at, bufs, p, key);\n        tc_copies_commit();\n"
    "    }\n    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        const float sum = tc_flash_sum(x.sum[r]), by = 1.0f / sum;\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns / 16; c++) {\n            x.o[r][c] *= by;\n        }\n"
    "        if (S::tells && lane == 0) {\n"
    "            float *to = at + (row - p.m + 8 * r) * S::staged_pitch + S::lanes;\n"
    "            to[0] = x.most[r];\n            to[1] = sum;\n        }\n    }\n"
    "    tc_flash_leave<S, S::columns>(x.o, at, S::staged_pitch);\n    __syncthreads();\n}\n";

/* ---- the prelude of gradients ---- */

static const char tci_cuda_flash_back[] =
    "template <class S> struct tc_flash_back {\n"
    "    float s[S::points][S::each], g[S::points][S::each];\n"
    "    float o0[S::points][S::columns_0 / 16], o1[S::points][S::columns_1 / 16];\n"
    "    float own[S::values][S::by_step ? S::each : S::points];\n};\n"
    "template <class S, class V>\n"
    "TC_I void tc_flash_own(tc_flash_back<S> &x, V values, tc_place p, int i, int query) {\n"
    "    float own[S::values];\n    const bool is = query < S::queries;\n"
    "    values(own, p, is ? query : S::queries - 1);\n"
    "    own[0] = is ? own[0] : __builtin_inff();\n    own[1] = is ? tc_log_2(own[1]) : 0.0f;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::values; k++) {\n        x.own[k][i] = own[k];\n    }\n}\n"
    "template <class S> TC_I void tc_flash_weights(tc_flash_back<S> &x, int n) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        const int r = i / S::each, j = i % S::each, q = S::by_step ? j : r;\n"
    "        const bool is = S::by_step || n + 16 * j < S::n;\n"
    "        const float s = is ? x.s[r][j] : -__builtin_inff();\n"
    "        x.s[r][j] = tc_power_of_2(__fmaf_rn(s - x.own[0][q], 1.44269504f, -x.own[1][q]));\n"
    "    }\n}\n"
    "template <class S, class G>\n"
    "TC_I void tc_flash_changes(tc_flash_back<S> &x, int row, int n, G change) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        const int r = i / S::each, j = i % S::each;\n"
    "        const float w = S::rounds ? S::round(x.s[r][j]) : x.s[r][j];\n"
    "        x.g[r][j] = change(w, x.g[r][j], x.own, S::by_step ? j : r, S::rows_end(row + 8 * "
    "r),\n                           S::steps_end(n + 16 * j));\n    }\n}\n"
    "template <class S, class V, class F, class H, class G>\n"
    "TC_I void tc_flash_back_tile(tc_flash_back<S> &x, float *at, void *const *bufs, tc_place p, "
    "bool cuts,\n                             V values, F score, H seen, G change) {\n"
    "    const int row = p.m + tc_flash_thread<S>() / 16, lane = tc_flash_thread<S>() % 16;\n"
    "    const int end = S::end(p, cuts);\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        for (int c = 0; c < S::columns_0 / 16; c++) {\n            x.o0[r][c] = 0;\n"
    "        }\n"
    "        for (int c = 0; c < S::columns_1 / 16; c++) {\n            x.o1[r][c] = 0;\n"
    "        }\n"
    "        if (!S::by_step) {\n            tc_flash_own(x, values, p, r, row + 8 * r);\n"
    "        }\n"
    "    }\n"
    "    S::load_rows_0(at, bufs, p, p.m);\n"
    "    if constexpr (S::changes) {\n"
    "        S::load_rows_1(at + S::rows_1, bufs, p, p.m);\n    }\n"
    "    for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "        S::load_steps_0(at + S::steps_at, bufs, p, n);\n"
    "        S::load_steps_1(at + S::steps_1, bufs, p, n);\n        tc_copies_commit();\n"
    "        if (S::by_step) {\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < S::each; j++) {\n"
    "                tc_flash_own(x, values, p, j, n + lane + 16 * j);\n            }\n        }\n"
    "        tc_copies_wait<0>();\n        __syncthreads();\n"
    "        tc_flash_pairs<S, S::width_0>(x.s, at, at + S::steps_at);\n"
    "        if (S::whole(p.m, n)) {\n"
    "            tc_flash_scores<S>(x.s, row, n + lane, seen);\n        } else {\n"
    "            tc_flash_scores<S>(x.s, row, n + lane, score);\n        }\n"
    "        tc_flash_weights<S>(x, n + lane);\n"
    "        if constexpr (S::weighs) {\n"
    "            tc_flash_tell<S>(x.s, at + S::pairs_at);\n"
    "            tc_flash_sums<S, S::columns_1>(x.o1, at + S::pairs_at, at + S::steps_1);\n"
    "            __syncwarp();\n        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_flash_pairs<S, S::width_1>(x.g, at + S::rows_1, at + S::steps_1);\n"
    "            tc_flash_changes<S>(x, row, n + lane, change);\n"
    "            tc_flash_tell<S>(x.g, at + S::pairs_at);\n"
    "            tc_flash_sums<S, S::columns_0>(x.o0, at + S::pairs_at, at + S::steps_at);\n"
    "        }\n"
    "        __syncthreads();\n    }\n}\n";

TCI_FN void tci_cuda_simt_attn_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_flash_copies);
    tci_str_add(out, tci_cuda_flash_loading);
    tci_str_add(out, tci_cuda_flash_products);
    tci_str_add(out, tci_cuda_flash_powers);
    tci_str_add(out, tci_cuda_flash_tile);
    tci_str_add(out, tci_cuda_flash_back);
}

/* ---- the class of a kernel ---- */

TCI_FN bool tci_cuda_is_simt_attn(const tci_loop *l)
{
    return (l->attention && l->attention->threads) || (l->backward && l->backward->threads);
}

static const char *tci_cuda_simt_attn_type(const tci_matrix *x)
{
    return x->dtype == TC_F32 ? "float" : "unsigned short";
}

/* True if groups of four of its elements start at a multiple of four. */
static bool tci_cuda_simt_attn_is_whole(const tci_matrix *x, const tci_matrix_side *side,
                                        int64_t size)
{
    bool whole = side->summed == 1 && size % 4 == 0 && side->own % 4 == 0 && side->offset % 4 == 0;
    for (int i = 0; i < x->n_batch; i++) {
        whole = whole && side->batch_pitch[i] % 4 == 0;
    }
    return whole;
}

/* The function `name`, which loads `rows` of a side's n rows of `size` elements from row `first`
 * on; they are `own` apart, their elements `summed`. */
static void tci_cuda_simt_attn_load(tci_str *out, const char *symbol, const char *name,
                                    const tci_matrix *x, tci_matrix_side side, int64_t n, int rows,
                                    int64_t size, int width)
{
    tci_str_printf(out,
                   "    TC_I void %s(float *to, void *const *bufs, tc_place p, int first) {\n"
                   "        tc_flash_load<%s_shape, %d, %lld, %d, %d, %d>(to, (const %s *)bufs[%d] "
                   "+ %lld",
                   name, symbol, rows, (long long)size, width,
                   tci_cuda_simt_attn_is_whole(x, &side, size), side.own == 1 && side.summed != 1,
                   tci_cuda_simt_attn_type(x), side.operand, (long long)side.offset);
    for (int i = 0; i < x->n_batch; i++) {
        if (side.batch_pitch[i]) {
            tci_str_printf(out, " + p.b%d * %lldll", i, (long long)side.batch_pitch[i]);
        }
    }
    tci_str_printf(out, " + first * %lldll,\n            %lld, %lld, %lld - first);\n    }\n",
                   (long long)side.own, (long long)side.own, (long long)side.summed, (long long)n);
}

/* A side whose own axis and summed axis have changed places. */
static tci_matrix_side tci_cuda_simt_attn_turned(tci_matrix_side side)
{
    int64_t own = side.own;
    side.own = side.summed;
    side.summed = own;
    return side;
}

static void tci_cuda_simt_attn_dtype(tci_str *out, const tci_matrix *x)
{
    bool is_f16 = x->dtype == TC_F16;
    if (x->dtype == TC_F32) {
        tci_str_add(out, "    TC_I float round(float x) { return x; }\n"
                         "    TC_I float wide(unsigned short x) { return x; }\n");
    } else {
        tci_str_printf(out,
                       "    TC_I float wide(unsigned short x) {\n        return %s;\n    }\n"
                       "    TC_I float round(float x) {\n        return %s;\n    }\n",
                       is_f16 ? "tc_widen_f32_f16(x)" : "__int_as_float((int)((unsigned)x << 16))",
                       is_f16 ? "tc_widen_f32_f16(tc_narrow_f32_f16(x))" : "tc_round_bf16(x)");
    }
}

static int tci_cuda_simt_attn_width(int64_t size)
{
    return tci_simt_attn_pitch(size) - TCI_FLASH_PAD;
}

static void tci_cuda_simt_attn_class(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *s = &x->scores, *r = &x->result;
    int width = tci_cuda_simt_attn_width(s->k);
    int keys_at = s->rows * tci_simt_attn_pitch(s->k);
    int values_at = keys_at + s->columns * tci_simt_attn_pitch(s->k);
    int pairs_at = values_at + s->columns * tci_simt_attn_pitch(r->columns);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        threads = %d, row_threads = %d, "
                   "width = %d, keys = %lld, step = %d, points = %d,\n        each = %d, "
                   "columns = %d, tiles = %lld, tells = %d, lanes = %d, staged_pitch = %d,\n"
                   "        keys_at = %d, values_at = %d, pairs_at = %d, words_at = %d\n    };\n",
                   symbol, x->threads, r->row_threads, width, (long long)s->n, s->columns,
                   s->rows / TCI_FLASH_GROUPS, s->columns / TCI_FLASH_LANES, r->columns,
                   (long long)s->tiles, x->tells, r->lanes, (int)r->staged_pitch, keys_at,
                   values_at, pairs_at, pairs_at + s->rows * tci_simt_attn_pitch(s->columns));
    tci_cuda_simt_attn_dtype(out, s);
    tci_cuda_attention_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    tci_cuda_simt_attn_load(out, symbol, "load_queries", s, s->side[0], s->m, s->rows, s->k, width);
    tci_cuda_simt_attn_load(out, symbol, "load_keys", s, s->side[1], s->n, s->columns, s->k, width);
    tci_cuda_simt_attn_load(out, symbol, "load_values", r, tci_cuda_simt_attn_turned(r->side[1]),
                            s->n, s->columns, tci_attention_value_columns(x), r->columns);
    tci_cuda_wgmma_place(out, r);
    tci_str_add(out, "};\n");
}

static void tci_cuda_simt_attn_back_class(tci_str *out, const char *symbol, const tci_attn_grad *x)
{
    const tci_matrix *s = &x->in[0], *g = &x->in[1];
    int width[2] = {(int)tci_attn_grad_columns_of(s->k), (int)tci_attn_grad_columns_of(g->k)};
    int rows_1 = s->rows * tci_simt_attn_pitch(width[0]);
    int steps_at = rows_1 + (x->n_in > 1 ? s->rows * tci_simt_attn_pitch(width[1]) : 0);
    int steps_1 = steps_at + s->columns * tci_simt_attn_pitch(width[0]);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        threads = %d, row_threads = %d, "
                   "width_0 = %d, width_1 = %d, n = %lld, step = %d, points = %d, each = %d,\n"
                   "        by_step = %d, rounds = %d, values = %d, queries = %lld, tiles = "
                   "%lld, staged_pitch = %d,\n        rows_1 = %d, steps_at = %d, steps_1 = %d, "
                   "pairs_at = %d\n    };\n",
                   symbol, x->threads, x->out[0].row_threads, width[0], width[1], (long long)s->n,
                   s->columns, s->rows / TCI_FLASH_GROUPS, s->columns / TCI_FLASH_LANES, x->by_step,
                   x->rounds, x->n_values, (long long)(x->by_step ? s->n : s->m),
                   (long long)s->tiles, (int)x->out[0].staged_pitch, rows_1, steps_at, steps_1,
                   steps_1 + s->columns * tci_simt_attn_pitch(width[1]));
    tci_cuda_attn_grad_sums(out, x);
    tci_cuda_simt_attn_dtype(out, s);
    tci_cuda_attn_grad_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    for (int i = 0; i < 2; i++) {
        const tci_matrix *in = &x->in[i];
        if (i < x->n_in) {
            tci_cuda_simt_attn_load(out, symbol, i ? "load_rows_1" : "load_rows_0", in, in->side[0],
                                    s->m, s->rows, in->k, width[i]);
        }
        tci_cuda_simt_attn_load(out, symbol, i ? "load_steps_1" : "load_steps_0", in, in->side[1],
                                s->n, s->columns, in->k, width[i]);
    }
    tci_cuda_wgmma_place(out, &x->out[0]);
    tci_str_add(out, "};\n");
}

/* ---- the kernel ---- */

TCI_FN void tci_cuda_simt_attn_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words)
{
    const tci_attention *a = l->attention;
    const tci_attn_grad *x = l->backward;
    int threads = a ? a->threads : x->threads;
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = a ? tci_simt_attn_bytes(a) : tci_simt_attn_back_bytes(x);
    k.block_x = l->matrix->row_threads;
    k.block_y = threads / l->matrix->row_threads;
    tci_cuda_skeleton_words(out, symbol, &k);
    if (a) {
        tci_cuda_simt_attn_class(out, symbol, a);
    } else {
        tci_cuda_simt_attn_back_class(out, symbol, x);
    }
    tci_cuda_skeleton_open(out, symbol, l, 0, n_words, threads / TCI_MATRIX_WARP,
                           a ? a->blocks : x->blocks);
    tci_str_add(out, "    TC_SHARED;\n    float *const at = (float *)tc_shared;\n");
    tci_cuda_skeleton_args(out);
}

/* A warp's rows of the accumulators that are left, up to what takes them. */
static void tci_cuda_simt_attn_rows(tci_str *out, const tci_matrix *o, int threads)
{
    int groups = TCI_MATRIX_WARP / o->row_threads; /* of rows that a warp is at */
    int rows = o->rows / (threads / TCI_MATRIX_WARP);
    tci_str_printf(out,
                   "    for (int row = threadIdx.y / %d * %d + threadIdx.y %% %d * %d, end = "
                   "threadIdx.y / %d * %d + %d; row < end; row += %d) {\n"
                   "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                   "    void *given = at + row * %d;\n",
                   groups, rows, groups, o->group_rows, groups, rows, rows, groups * o->group_rows,
                   (long long)o->m, (int)o->staged_pitch);
}

static void tci_cuda_simt_attn_run(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *r = &x->result;
    tci_str_printf(out,
                   "    tc_flash<%s_shape> x;\n"
                   "    tc_flash_tile<%s_shape>(x, at, bufs, p, score_0, score_%d);\n",
                   symbol, symbol, x->cut.is_cut);
    tci_cuda_simt_attn_rows(out, r, x->threads);
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", r->m_axis, r->n_axis);
}

static void tci_cuda_simt_attn_back_run(tci_str *out, const char *symbol, const tci_attn_grad *x)
{
    const tci_matrix *o = &x->out[0];
    tci_str_printf(out,
                   "    tc_flash_back<%s_shape> x;\n"
                   "    tc_flash_back_tile<%s_shape>(x, at, bufs, p, cuts, values, score_0, "
                   "score_%d, %s);\n",
                   symbol, symbol, x->cut.is_cut, x->n_in > 1 ? "change" : "0");
    for (int i = x->n_out - 1; i >= 0; i--) {
        int taken = tci_attn_grad_taken(x, i);
        tci_str_printf(out,
                       "    tc_flash_leave<%s_shape, %s_shape::columns_%d>(x.o%d, at, "
                       "%s_shape::staged_pitch);\n    __syncthreads();\n",
                       symbol, symbol, taken, taken, symbol);
        tci_cuda_simt_attn_rows(out, &x->out[i], x->threads);
        if (i == 1) {
            tci_str_add(out, "    rows_1(p.m + row, given);\n    }\n    __syncthreads();\n");
        }
    }
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", o->m_axis, o->n_axis);
}

TCI_FN void tci_cuda_simt_attn_open(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    if (l->backward) {
        tci_cuda_attn_grad_open(out, symbol, l, i);
        return;
    }
    const tci_matrix *s = &l->attention->scores;
    if (i == 0) {
        tci_cuda_attention_tiles(out, symbol, s);
    }
    tci_cuda_attention_value(out, s, i);
}

TCI_FN void tci_cuda_simt_attn_close(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attn_grad *x = l->backward;
    bool last = i + 1 == l->n_scores;
    if (!x) {
        tci_str_add(out, "    return value;\n    };\n");
        if (last) {
            tci_cuda_simt_attn_run(out, symbol, l->attention);
        }
        return;
    }
    tci_cuda_attn_grad_end(out, x, i);
    if (tci_cuda_attn_grad_block(x, i) ==
        (x->cut.is_cut ? TCI_CUDA_BACKWARD_OFF : TCI_CUDA_BACKWARD_VALUES)) {
        tci_str_printf(out, "    const bool cuts = %s;\n",
                       x->cut.is_cut ? "off == -__builtin_inff()" : "false");
        tci_cuda_attention_tiles(out, symbol, &x->in[0]);
    }
    if (last) {
        tci_cuda_simt_attn_back_run(out, symbol, x);
    }
}

TCI_FN void tci_cuda_simt_attn_tail(tci_str *out)
{
    tci_str_add(out, "    }\n    __syncthreads();\n    }\n}\n");
}
