/* cuda/wgmma_gemm.c - writes the CUDA source of the warp-specialized WGMMA GEMM: TMA producer warp,
 * consumer warps, mbarrier pipeline. In three layers:
 *
 *   functions   of the prelude, one PTX instruction each; tests that run the text without a GPU
 *               define TC_NO_PTX and these names
 *   templates   of the prelude, tc_matrix_load and tc_matrix_multiply: the producer and the
 *               consumers (loop/wgmma_gemm.h), over a class S that has the numbers of one kernel
 *   kernel      its class S, the split into roles, and the code around the epilogue slot
 *
 * Shared memory, from a multiple of 1024: stages of A's and B's boxes, buffers for accumulators,
 * mbarriers (tc_full, tc_empty: one per stage; tc_ready, tc_taken: one per consumer; tc_done). A
 * box is rows of 128 bytes whose 16-byte chunks are swizzled (chunk ^= row % 8). Along k it has a
 * row for each m or n; else a row for each k and 64 elements of m or n, and the boxes of a side are
 * consecutive.
 *
 * Matrix descriptors: the address / 16 in bits 0-13, the leading offset in 16-29, the stride
 * between groups of eight rows in 32-45, 1 << 62 for this swizzle. An instruction takes 32 bytes
 * of k, 16 elements, 8 of f32 or 32 bytes; the next ones are 32 bytes further along k, else 16
 * rows.
 *
 * Blocks that share a side write to each other's stages, so a stage is free when both have read
 * it: a consumer signals both, by its first warp, since a product is complete for all of its warps
 * at once. The mbarrier arrive has no cluster-scope release semantics: no thread wrote the data
 * that it would order, and a device-wide fence per step takes longer than its products. A block's
 * producer stays until its last stages were freed, so that nothing arrives at a block that has
 * exited.
 *
 * Invariants: tc_empty counts a stage's readers, four warps of each consumer or, for blocks that
 * share, one of each consumer of both; a buffer is written only after its previous contents were
 * taken; no barrier of the whole block after tc_matrix_begin, as its warps diverge. */
#include "wgmma_gemm.h"

#include <string.h>

enum {
    TCI_CUDA_MAP_U8 = 0,    /* CU_TENSOR_MAP_DATA_TYPE_UINT8: bytes of any signs */
    TCI_CUDA_MAP_F16 = 6,   /* CU_TENSOR_MAP_DATA_TYPE_FLOAT16 */
    TCI_CUDA_MAP_BF16 = 9,  /* ..._BFLOAT16 */
    TCI_CUDA_MAP_TF32 = 11, /* ..._TFLOAT32: f32 that is rounded on its way */
    TCI_CUDA_SUB_BYTES = 64 * TCI_MATRIX_LINE,
    TCI_CUDA_ORDER_ROWS = 2048 /* rows of a band of tiles, about: a round's tiles are a square */
};

/* ---- what the module says ---- */

/* Rows of m or n that the boxes of a side hold. Beyond the side's end nothing is loaded where one
 * tile is all of it: filling with zeros takes time, and what the products make of the rest of
 * shared memory is in rows and columns that are not stored. */
TCI_FN int tci_cuda_wgmma_loaded(const tci_matrix *x, int which)
{
    int64_t own = which == 0 ? x->m : x->n, tile = which == 0 ? x->rows : x->columns;
    if (which == 1 && x->y_axis >= 0) { /* whole rows of an image */
        return x->own_columns;
    }
    int64_t whole = x->side[which].along_k ? 8 * tci_matrix_sharing(x, which) : TCI_MATRIX_SUB;
    return (int)(tci_dim_known(tci_dim_ceil_div(TCI_MIN(tile, own), whole)) * whole);
}

static int tci_cuda_wgmma_bytes(const tci_matrix *x)
{
    return tci_dtype_get((tc_dtype)x->dtype)->bytes;
}

/* Number of elements of a box along a side's axis for this axis of the kernel. */
static int64_t tci_cuda_wgmma_extent(const tci_matrix *x, int which, int axis)
{
    int own = which == 0 ? x->m_axis : x->n_axis;
    bool images = which == 1 && x->y_axis >= 0;
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_axis[i] == axis) {
            return x->k_block[i];
        }
    }
    if (images && axis == x->y_axis) {
        return x->own_columns / x->image_row;
    }
    return axis != own              ? 1
           : images                 ? x->image_row
           : x->side[which].along_k ? tci_cuda_wgmma_loaded(x, which)
                                    : TCI_MATRIX_SUB;
}

static void tci_cuda_wgmma_boxes(const tci_matrix *x, int which, tci_cuda_map *map)
{
    const tci_matrix_side *side = &x->side[which];
    map->rank = side->n_dims;
    for (int i = 0; i < side->n_dims; i++) {
        const tci_matrix_dim *d = &side->dims[i];
        map->dim[i] = d->size;
        map->box[i] = 1;
        if (i > 0) {
            map->stride[i - 1] = tci_cuda_wgmma_bytes(x) * d->stride;
        }
        for (int a = 0; a < TCI_MATRIX_AXES; a++) {
            int64_t n = d->coef[a] != 0 ? tci_cuda_wgmma_extent(x, which, a) : 1;
            map->box[i] = n > 1 ? n : map->box[i];
            map->step[i] = n > 1 ? d->coef[a] : map->step[i];
        }
    }
}

/* Along an axis of images: what the elements of a window add at least to a position's
 * coordinate. */
static int64_t tci_cuda_wgmma_least(const tci_matrix *x, const tci_matrix_dim *d)
{
    int64_t least = 0;
    for (int i = 0; i < x->n_k; i++) {
        least += TCI_MIN(d->coef[x->k_axis[i]] * (x->k_sizes[i] - 1), 0);
    }
    return least;
}

/* A's images, where rows are positions of them. */
static void tci_cuda_wgmma_images(const tci_matrix *x, tci_cuda_map *map)
{
    const tci_matrix_side *side = &x->side[0];
    map->axes = x->n_places - !x->one_image;
    map->rank = map->axes + 2;
    map->box[0] = TCI_MATRIX_DEPTH_STEP;
    map->box[1] = tci_cuda_wgmma_loaded(x, 0);
    for (int i = 0; i < map->rank; i++) {
        bool counts = i == map->rank - 1 && x->one_image;
        map->dim[i] = counts ? 1 : side->dims[i].size;
        if (i > 0) { /* one image is followed by none */
            map->stride[i - 1] = 2 * (counts ? side->dims[i - 1].stride * side->dims[i - 1].size
                                             : side->dims[i].stride);
        }
    }
    for (int i = 0; i < map->axes; i++) {
        const tci_matrix_dim *d = &side->dims[1 + i];
        map->step[1 + i] = d->coef[x->place_axis[i]];
        map->low[i] = d->base + tci_cuda_wgmma_least(x, d);
        map->high[i] = map->low[i] + map->step[1 + i] * (x->place_sizes[i] - 1) + 1 - d->size;
    }
}

TCI_FN tci_cuda_map tci_cuda_wgmma_map(const tci_matrix *x, int which)
{
    const tci_matrix_side *side = &x->side[which];
    int64_t own = which == 0 ? x->m : x->n, bytes = tci_cuda_wgmma_bytes(x);
    tci_cuda_map map;
    memset(&map, 0, sizeof(map));
    map.operand = side->operand;
    map.type = x->dtype == TC_F16   ? TCI_CUDA_MAP_F16
               : x->dtype == TC_F32 ? TCI_CUDA_MAP_TF32
               : x->dtype == TC_I8  ? TCI_CUDA_MAP_U8
                                    : TCI_CUDA_MAP_BF16;
    map.rank = 2;
    map.offset = bytes * side->offset;
    for (int i = 0; i < TCI_COUNT(map.step); i++) {
        map.step[i] = 1;
    }
    if (which == 0 && x->n_places > 0) {
        tci_cuda_wgmma_images(x, &map);
        return map;
    }
    if (x->is_boxes) {
        tci_cuda_wgmma_boxes(x, which, &map);
        return map;
    }
    map.dim[0] = side->along_k ? x->k : own;
    map.dim[1] = side->along_k ? own : x->k;
    map.stride[0] = bytes * side->pitch;
    map.box[0] = tci_matrix_depth(x);
    map.box[1] = side->along_k ? tci_cuda_wgmma_loaded(x, which) : tci_matrix_depth(x);
    map.box[1] /= tci_matrix_sharing(x, which);
    for (int i = 0; i < x->n_batch; i++) {
        if (side->batch_pitch[i] != 0) {
            map.dim[map.rank] = x->batch[i];
            map.stride[map.rank - 1] = bytes * side->batch_pitch[i];
            map.box[map.rank++] = 1;
        }
    }
    return map;
}

static tci_cuda_skeleton tci_cuda_wgmma_describe(const tci_matrix *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_matrix_shared_bytes(x);
    int warps = 4 * x->consumers + 1 + x->last_warps;
    k.block_x = x->row_threads;
    k.block_y = TCI_MATRIX_WARP * warps / x->row_threads;
    k.n_maps = 2;
    k.maps[0] = tci_cuda_wgmma_map(x, 0);
    k.maps[1] = tci_cuda_wgmma_map(x, 1);
    return k;
}

/* ---- the prelude ---- */

static const char tci_cuda_matrix_ptx[] =
    "struct __align__(64) tc_map { unsigned long long q[16]; };\n"
    "struct tc_place { int m, n, b0, b1, b2, b3; };\n"
    "#ifndef TC_NO_PTX\n"
    "#define TC_MULTIPLY(type, columns, ta, tb) tc_multiply_##type##_##columns##_##ta##tb\n"
    "#define TC_SHARED extern __shared__ __align__(1024) unsigned char tc_shared[]\n"
    "TC_I unsigned tc_shared_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }\n"
    "TC_I void tc_shared_written() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: "
    "\"memory\"); }\n"
    "TC_I void tc_barrier_init(unsigned bar, int arrivals) {\n"
    "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(bar), "
    "\"r\"(arrivals));\n}\n"
    "TC_I void tc_barrier_init_done() {\n"
    "    asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");\n}\n"
    "TC_I void tc_barrier_arrive(unsigned bar) {\n"
    "    asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(bar) : "
    "\"memory\");\n}\n"
    "TC_I void tc_barrier_expect(unsigned bar, int bytes) {\n"
    "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \"r\"(bar), "
    "\"r\"(bytes) : \"memory\");\n}\n"
    "TC_I void tc_barrier_wait(unsigned bar, unsigned parity) {\n    unsigned done;\n    do {\n"
    "        asm volatile(\"{\\n.reg .pred p;\\n"
    "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}\"\n"
    "            : \"=r\"(done) : \"r\"(bar), \"r\"(parity) : \"memory\");\n"
    "    } while (!done);\n}\n"
    "TC_I void tc_barrier_arrive_at(unsigned bar, int block) {\n"
    "    asm volatile(\"{\\n.reg .b32 at;\\nmapa.shared::cluster.u32 at, %0, %1;\\n"
    "mbarrier.arrive.shared::cluster.b64 _, [at];\\n}\" :: \"r\"(bar), "
    "\"r\"(block) : \"memory\");\n}\n"
    "TC_I void tc_blocks_meet() {\n"
    "    asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\\n"
    "barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n}\n"
    "#define TC_LOAD_BOX(rank, list, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {\" list \"}], [%2];\" "
    ":: \"r\"(to), \"l\"(map), \"r\"(bar), __VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b) {\n"
    "    TC_LOAD_BOX(\"2\", \"%3, %4\", \"r\"(a), \"r\"(b));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c) {\n"
    "    TC_LOAD_BOX(\"3\", \"%3, %4, %5\", \"r\"(a), \"r\"(b), \"r\"(c));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d) {\n"
    "    TC_LOAD_BOX(\"4\", \"%3, %4, %5, %6\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e) {\n"
    "    TC_LOAD_BOX(\"5\", \"%3, %4, %5, %6, %7\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), "
    "\"r\"(e));\n}\n"
    "#define TC_SHARE_BOX(rank, list, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {\" "
    "list \"}], [%2], %3;\" :: \"r\"(to), \"l\"(map), \"r\"(bar), \"h\"((unsigned short)3), "
    "__VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b) {\n"
    "    TC_SHARE_BOX(\"2\", \"%4, %5\", \"r\"(a), \"r\"(b));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c) {\n"
    "    TC_SHARE_BOX(\"3\", \"%4, %5, %6\", \"r\"(a), \"r\"(b), \"r\"(c));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d) {\n"
    "    TC_SHARE_BOX(\"4\", \"%4, %5, %6, %7\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e) {\n"
    "    TC_SHARE_BOX(\"5\", \"%4, %5, %6, %7, %8\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), "
    "\"r\"(e));\n}\n"
    "#endif\n";

/* Registers, products, what leaves them. */
static const char tci_cuda_matrix_products_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "template <int n> TC_I void tc_take_registers() {\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "template <int n> TC_I void tc_leave_registers() {\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "TC_I void tc_products_begin() {\n"
    "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n}\n"
    "TC_I void tc_products_commit() {\n"
    "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n}\n"
    "template <int left> TC_I void tc_products_wait() {\n"
    "    asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(left) : \"memory\");\n}\n"
    "TC_I unsigned tc_pair_f16(float low, float high) {\n    unsigned r;\n"
    "    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low));\n"
    "    return r;\n}\n"
    "TC_I void tc_store_squares(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {\n"
    "    asm volatile(\"stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};\"\n"
    "        :: \"r\"(to), \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d) : \"memory\");\n}\n"
    "TC_I void tc_store_two(unsigned to, float a, float b) {\n"
    "    asm volatile(\"st.shared::cta.v2.f32 [%0], {%1, %2};\" :: \"r\"(to), \"f\"(a), \"f\"(b) "
    ": \"memory\");\n}\n"
    "TC_I void tc_store_two(unsigned to, int a, int b) {\n"
    "    asm volatile(\"st.shared::cta.v2.b32 [%0], {%1, %2};\" :: \"r\"(to), \"r\"(a), \"r\"(b) "
    ": \"memory\");\n}\n"
    "#endif\n";

/* Loads of positions of images: coordinates of the first one, and offsets. */
static const char tci_cuda_matrix_places[] =
    "#ifndef TC_NO_PTX\n"
    "#define TC_LOAD_PLACES(rank, list, offsets, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {\" list \"}], "
    "[%2], {\" offsets \"};\" :: \"r\"(to), \"l\"(map), \"r\"(bar), __VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "unsigned short u) {\n"
    "    TC_LOAD_PLACES(\"3\", \"%3, %4, %5\", \"%6\", \"r\"(a), \"r\"(b), \"r\"(c), "
    "\"h\"(u));\n}\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, unsigned short u, unsigned short v) {\n"
    "    TC_LOAD_PLACES(\"4\", \"%3, %4, %5, %6\", \"%7, %8\", \"r\"(a), \"r\"(b), \"r\"(c), "
    "\"r\"(d), \"h\"(u), \"h\"(v));\n}\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e, unsigned short u, unsigned short v, unsigned short w) {\n"
    "    TC_LOAD_PLACES(\"5\", \"%3, %4, %5, %6, %7\", \"%8, %9, %10\", \"r\"(a), \"r\"(b), "
    "\"r\"(c), \"r\"(d), \"r\"(e), \"h\"(u), \"h\"(v), \"h\"(w));\n}\n"
    "#endif\n";

/* Barriers and loading. tc_warp_arrive: one arrival of a warp, after what all its threads did. */
static const char tci_cuda_matrix_loading[] =
    "template <class S> TC_I int tc_warp() { return threadIdx.y * S::row_threads / 32; }\n"
    "template <class S> TC_I int tc_warp_lane() {\n"
    "    return threadIdx.x + threadIdx.y * S::row_threads % 32;\n}\n"
    "template <class S> TC_I void tc_warp_arrive(unsigned bar) {\n    __syncwarp();\n"
    "    if (tc_warp_lane<S>() == 0) {\n        tc_barrier_arrive(bar);\n    }\n}\n"
    "TC_I unsigned long long tc_box(unsigned at) {\n"
    "    return (unsigned long long)((at & 0x3ffff) >> 4) | (8192ull >> 4) << 16 | "
    "(1024ull >> 4) << 32 | 1ull << 62;\n}\n"
    "template <class S> TC_I unsigned tc_full(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * i;\n}\n"
    "template <class S> TC_I unsigned tc_empty(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (S::stages + i);\n}\n"
    "template <class S> TC_I unsigned tc_ready(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + i);\n}\n"
    "template <class S> TC_I unsigned tc_taken(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + S::consumers + i);\n}\n"
    "template <class S> TC_I unsigned tc_done(unsigned at) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + 2 * S::consumers);\n}\n"
    "template <class S> TC_I int tc_staged(int row) {\n"
    "    return S::stages * S::stage_bytes + row * S::staged_pitch * S::staged_bytes;\n}\n"
    "template <class S> TC_I void tc_matrix_begin(unsigned at) {\n"
    "    if constexpr (S::k_rows < S::depth) { /* what follows them is zeros, always */\n"
    "        TC_SHARED;\n"
    "        unsigned *stages = (unsigned *)(tc_shared + (at - tc_shared_at(tc_shared)));\n"
    "        const int threads = 32 * (4 * S::consumers + 1 + S::last_warps);\n"
    "        for (int i = 32 * tc_warp<S>() + tc_warp_lane<S>(); i < S::stages * S::stage_bytes / "
    "4;\n             i += threads) {\n            stages[i] = 0;\n        }\n"
    "        tc_shared_written();\n    }\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), S::readers);\n        }\n"
    "        for (int i = 0; i < S::consumers; i++) {\n"
    "            tc_barrier_init(tc_ready<S>(at, i), 4);\n"
    "            tc_barrier_init(tc_taken<S>(at, i), S::last_warps);\n        }\n"
    "        tc_barrier_init(tc_done<S>(at), 4 * S::consumers);\n"
    "        tc_barrier_init_done();\n    }\n"
    "    if constexpr (S::blocks > 1) {\n        tc_blocks_meet();\n    } else {\n"
    "        __syncthreads();\n    }\n}\n"
    "template <class S> TC_I void tc_stage_free(unsigned at, int stage) {\n"
    "    if constexpr (S::blocks > 1) {\n"
    "        if (tc_warp<S>() % 4 == 0 && tc_warp_lane<S>() < S::blocks) {\n"
    "            tc_barrier_arrive_at(tc_empty<S>(at, stage), tc_warp_lane<S>());\n        }\n"
    "    } else {\n        tc_warp_arrive<S>(tc_empty<S>(at, stage));\n    }\n}\n"
    "template <class S> TC_I void tc_matrix_load(unsigned at, const tc_map *maps) {\n"
    "    int stage = 0;\n    unsigned parity = 1;\n"
    "    for (int t = blockIdx.x; t < S::tiles; t += gridDim.x) {\n"
    "        const tc_place p = S::place(t);\n"
    "        for (int k = 0; k < S::k; k += S::depth) {\n"
    "            const unsigned boxes = at + stage * S::stage_bytes;\n"
    "            const unsigned full = tc_full<S>(at, stage);\n"
    "            tc_barrier_wait(tc_empty<S>(at, stage), parity);\n"
    "            tc_barrier_expect(full, S::loaded_bytes);\n"
    "            S::load_a(boxes, maps, full, p, k);\n"
    "            S::load_b(boxes + S::a_bytes, maps + 1, full, p, k);\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n    }\n"
    "    if constexpr (S::blocks > 1) { /* which free each other's stages, up to the last */\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_wait(tc_empty<S>(at, stage), parity);\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n    }\n}\n";

static const char tci_cuda_matrix_multiplying[] =
    "template <class S, class D>\n"
    "TC_I void tc_matrix_leave(const D (&d)[S::columns / 2], unsigned to) {\n"
    "    const int lane = tc_warp_lane<S>(), row = 16 * (tc_warp<S>() & 3);\n"
    "    if constexpr (S::staged_bytes == 4) {\n"
    "        const unsigned at = to + 4 * ((row + lane / 4) * S::staged_pitch + 2 * (lane & 3));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns / 2; i += 2) {\n"
    "            tc_store_two(at + 4 * (i / 2 % 2 * 8 * S::staged_pitch + i / 4 * 8), d[i], "
    "d[i + 1]);\n        }\n        return;\n    }\n"
    "    const unsigned at = to + 2 * ((row + lane % 16) * S::staged_pitch + lane / 16 * 8);\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::columns / 2; i += 8) {\n"
    "        tc_store_squares(at + 4 * i, S::pair(d[i], d[i + 1]), S::pair(d[i + 2], d[i + 3]),\n"
    "                         S::pair(d[i + 4], d[i + 5]), S::pair(d[i + 6], d[i + 7]));\n"
    "    }\n}\n"
    "template <class S, class D = float> TC_I void tc_matrix_multiply(unsigned at, int group) {\n"
    "    D d[S::sub_rows][S::columns / 2];\n    int stage = 0, before = 0;\n"
    "    const int user = S::buffers == 1 ? (group + S::consumers - 1) % S::consumers : group;\n"
    "    const int buffer = S::buffers == 1 ? 0 : group;\n"
    "    unsigned parity = 0, taken = S::buffers > 1 || group == 0;\n"
    "    for (int t = blockIdx.x; t < S::tiles; t += gridDim.x) {\n"
    "        for (int k = 0; k < S::k; k += S::depth) {\n"
    "            const unsigned boxes = at + stage * S::stage_bytes;\n"
    "            tc_barrier_wait(tc_full<S>(at, stage), parity);\n"
    "            const unsigned long long a = tc_box(boxes + group * S::sub_rows * 8192);\n"
    "            const unsigned long long b = tc_box(boxes + S::a_bytes);\n"
    "            tc_products_begin();\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < 4; i++) {\n"
    "#pragma unroll\n"
    "                for (int r = 0; r < S::sub_rows; r++) {\n"
    "                    S::multiply(d[r], a + 512 * r + S::a_step * i, b + S::b_step * i, "
    "k + i > 0);\n                }\n            }\n"
    "            tc_products_commit();\n            tc_products_wait<1>();\n"
    "            if (k > 0) {\n                tc_stage_free<S>(at, before);\n"
    "            }\n            before = stage;\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n"
    "        tc_products_wait<0>();\n        tc_stage_free<S>(at, before);\n"
    "        tc_barrier_wait(tc_taken<S>(at, user), taken);\n        taken ^= 1;\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::sub_rows; r++) {\n"
    "            tc_matrix_leave<S>(d[r], at + tc_staged<S>((buffer * S::sub_rows + r) * 64));\n"
    "        }\n        tc_warp_arrive<S>(tc_ready<S>(at, group));\n    }\n"
    "    tc_warp_arrive<S>(tc_done<S>(at));\n}\n";

TCI_FN void tci_cuda_wgmma_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_matrix_ptx);
    tci_str_add(out, tci_cuda_matrix_products_ptx);
    tci_str_add(out, tci_cuda_matrix_places);
    tci_str_add(out, tci_cuda_matrix_loading);
    tci_str_add(out, tci_cuda_matrix_multiplying);
}

/* ---- products ---- */

TCI_FN const char *tci_cuda_wgmma_type(const tci_matrix *x)
{
    static const char *const bytes[4] = {"s8s8", "s8u8", "u8s8", "u8u8"};
    return x->dtype == TC_F16   ? "f16"
           : x->dtype == TC_F32 ? "tf32"
           : x->dtype == TC_I8  ? bytes[2 * x->side[0].is_unsigned + x->side[1].is_unsigned]
                                : "bf16";
}

/* In the product's name in PTX: accumulators, A and B. */
static const char *tci_cuda_wgmma_ptx_type(tci_scratch *s, const tci_matrix *x)
{
    const char *type = tci_cuda_wgmma_type(x);
    return x->dtype == TC_I8 ? tci_scratch_printf(s, "s32.%.2s.%s", type, type + 2)
                             : tci_scratch_printf(s, "f32.%s.%s", type, type);
}

/* Of a sum. */
static const char *tci_cuda_wgmma_sum(const tci_matrix *x)
{
    return x->dtype == TC_I8 ? "int" : "float";
}

TCI_FN const char *tci_cuda_wgmma_product_name(tci_scratch *s, const tci_matrix *x)
{
    return tci_scratch_printf(s, "tc_multiply_%s_%d_%d%d", tci_cuda_wgmma_type(x), x->columns,
                              !x->side[0].along_k, !x->side[1].along_k);
}

TCI_FN void tci_cuda_wgmma_product(tci_str *out, const char *name, const tci_matrix *x)
{
    bool bytes = x->dtype == TC_I8;
    int n = x->columns / 2;
    tci_str_printf(out,
                   "#ifndef TC_NO_PTX\nTC_I void %s(%s (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n"
                   "wgmma.mma_async.sync.aligned.m64n%dk%d.%s {",
                   name, tci_cuda_wgmma_sum(x), n, n + 2, x->columns, 32 / tci_cuda_wgmma_bytes(x),
                   tci_cuda_wgmma_ptx_type(out->s, x));
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : "", i);
    }
    tci_str_printf(out, "}, %%%d, %%%d, p%s", n, n + 1, bytes ? "" : ", 1, 1");
    if (tci_dtype_is_half((tc_dtype)x->dtype)) { /* others are not transposed while loading */
        tci_str_printf(out, ", %d, %d", !x->side[0].along_k, !x->side[1].along_k);
    }
    tci_str_add(out, ";\\n}\"\n        : ");
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s\"+%c\"(d[%d])", i ? ", " : "", bytes ? 'r' : 'f', i);
    }
    tci_str_add(out, " : \"l\"(a), \"l\"(b), \"r\"(add));\n}\n#endif\n");
}

/* ---- the kernel ---- */

TCI_FN void tci_cuda_skeleton_words(tci_str *out, const char *symbol, const tci_cuda_skeleton *k)
{
    int64_t words[sizeof(*k) / sizeof(int64_t)];
    memcpy(words, k, sizeof(*k));
    tci_str_printf(out,
                   "extern \"C\" __constant__ long long "
                   "%s_skeleton[] = {",
                   symbol);
    for (int i = 0; i < TCI_COUNT(words); i++) {
        tci_str_printf(out, "%s%lld", i ? ", " : "", (long long)words[i]);
    }
    tci_str_add(out, "};\n");
}

/* Begins a load of one stage: with the first element of a step along each contracted axis: k0, k1,
 * .., the last one fastest. */
static void tci_cuda_wgmma_load_head(tci_str *out, const char *name, const tci_matrix *x)
{
    int64_t below = tci_matrix_depth(x);
    tci_str_printf(out,
                   "    TC_I void %s(unsigned to, const tc_map *map, unsigned bar, "
                   "tc_place p, int k) {\n",
                   name);
    for (int i = x->n_k - 1; i >= 0; i--) {
        int64_t n = tci_dim_known(tci_dim_ceil_div(x->k_sizes[i], x->k_block[i]));
        tci_str_printf(out, "        const int k%d = k / %lld %% %lld * %d;\n", i, (long long)below,
                       (long long)n, x->k_block[i]);
        below *= n;
    }
}

/* Text of the coordinate of axis a of the kernel. */
static const char *tci_cuda_wgmma_where(const tci_matrix *x, int a)
{
    static const char *const batch[TCI_MATRIX_BATCH] = {"p.b0", "p.b1", "p.b2", "p.b3"};
    static const char *const k[TCI_MATRIX_K_AXES] = {"k0", "k1", "k2", "k3"};
    for (int i = 0; i < x->n_batch; i++) {
        if (x->batch_axis[i] == a) {
            return batch[i];
        }
    }
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_axis[i] == a) {
            return k[i];
        }
    }
    return a == x->m_axis ? "p.m" : x->y_axis < 0 ? "p.n" : a == x->y_axis ? "p.n / row" : NULL;
}

/* Loads the boxes of one stage of a side that is an array: a box for every 64 of its own axis where
 * that is contiguous, else one. */
static void tci_cuda_wgmma_load_boxes(tci_str *out, const char *name, const tci_matrix *x,
                                      int which)
{
    const tci_matrix_side *side = &x->side[which];
    int n = side->along_k ? 1 : tci_cuda_wgmma_loaded(x, which) / TCI_MATRIX_SUB;
    tci_cuda_wgmma_load_head(out, name, x);
    if (which == 1 && x->y_axis >= 0) {
        tci_str_printf(out, "        const int row = %lld;\n", (long long)x->image_row);
    }
    tci_str_printf(out,
                   "        for (int i = 0; i < %d; i++) {\n"
                   "            tc_load_box(to + %d * i, map, bar",
                   n, TCI_CUDA_SUB_BYTES);
    for (int i = 0; i < side->n_dims; i++) {
        const tci_matrix_dim *d = &side->dims[i];
        tci_str_printf(out, ", %lld", (long long)d->base);
        for (int a = 0; a < TCI_MATRIX_AXES; a++) {
            const char *where = d->coef[a] != 0 ? tci_cuda_wgmma_where(x, a) : NULL;
            if (where) {
                tci_str_printf(out, " + %d * (%s)", d->coef[a], where);
            }
        }
        tci_str_add(out, i == 0 && !side->along_k ? " + 64 * i" : "");
    }
    tci_str_add(out, ");\n        }\n    }\n");
}

/* Loads what A's rows, positions of images, have for one stage: where the first of them begins, and
 * for each axis the window's element of this step. */
static void tci_cuda_wgmma_load_places(tci_str *out, const char *name, const tci_matrix *x)
{
    const tci_matrix_side *side = &x->side[0];
    int axes = x->n_places - !x->one_image;
    long long below = 1;
    tci_cuda_wgmma_load_head(out, name, x);
    tci_str_add(out, "        tc_load_places(to, map, bar");
    for (int i = 0; i < x->n_k; i++) {
        tci_str_printf(out, side->dims[0].coef[x->k_axis[i]] != 0 ? ", k%d" : "", i);
    }
    for (int i = 0; i < axes; below *= x->place_sizes[i++]) {
        const tci_matrix_dim *d = &side->dims[1 + i];
        tci_str_printf(out, ", %lld + %d * (p.m / %lld %% %lld)",
                       (long long)(d->base + tci_cuda_wgmma_least(x, d)), d->coef[x->place_axis[i]],
                       below, (long long)x->place_sizes[i]);
    }
    tci_str_printf(out, x->one_image ? ", 0" : ", p.m / %lld", below);
    for (int i = 0; i < axes; i++) {
        tci_str_add(out, ", 0");
        for (int a = 0; a < x->n_k; a++) {
            int coef = side->dims[1 + i].coef[x->k_axis[a]];
            if (coef > 0) {
                tci_str_printf(out, " + %d * k%d", coef, a);
            } else if (coef < 0) {
                tci_str_printf(out, " + %d * (%lld - k%d)", -coef, (long long)x->k_sizes[a] - 1, a);
            }
        }
    }
    tci_str_add(out, ");\n    }\n");
}

/* Loads the boxes of one stage of A or B. */
TCI_FN void tci_cuda_wgmma_loads(tci_str *out, const char *name, const tci_matrix *x, int which)
{
    if (which == 0 && x->n_places > 0) {
        tci_cuda_wgmma_load_places(out, name, x);
        return;
    }
    if (x->is_boxes) {
        tci_cuda_wgmma_load_boxes(out, name, x, which);
        return;
    }
    const tci_matrix_side *side = &x->side[which];
    char own = "mn"[which];
    bool shared = tci_matrix_sharing(x, which) > 1;
    const char *how = shared ? "share" : "load";
    int rows = (side->along_k ? tci_cuda_wgmma_loaded(x, which) : tci_matrix_depth(x)) / 2;
    tci_str_printf(out,
                   "    TC_I void %s(unsigned to, const tc_map *map, unsigned bar, "
                   "tc_place p, int k) {\n",
                   name);
    if (shared) { /* rows of the boxes that this block loads for both */
        tci_str_printf(out,
                       "        const int rows = blockIdx.x %% 2 * %d;\n        to += %d * rows;\n",
                       rows, TCI_MATRIX_LINE);
        tci_str_printf(out, side->along_k ? "        p.%c += rows;\n" : "        k += rows;\n",
                       own);
    }
    if (side->along_k) {
        tci_str_printf(out, "        tc_%s_box(to, map, bar, k, p.%c", how, own);
    } else {
        tci_str_printf(out,
                       "        for (int i = 0; i < %d; i++) {\n"
                       "            tc_%s_box(to + %d * i, map, bar, p.%c + %d * i, k",
                       tci_cuda_wgmma_loaded(x, which) / TCI_MATRIX_SUB, how, TCI_CUDA_SUB_BYTES,
                       own, TCI_MATRIX_SUB);
    }
    for (int i = 0; i < x->n_batch; i++) {
        if (side->batch_pitch[i] != 0) {
            tci_str_printf(out, ", p.b%d", i);
        }
    }
    tci_str_add(out, side->along_k ? ");\n    }\n" : ");\n        }\n    }\n");
}

/* Tile t: bands of rows, about as high as each other; inside them columns, inside them rows; the
 * batch is slowest. Blocks that share a side have neighbouring tiles: as many columns follow each
 * other, or a band has a multiple of as many rows. */
TCI_FN void tci_cuda_wgmma_place(tci_str *out, const tci_matrix *x)
{
    const int most = TCI_MAX(TCI_CUDA_ORDER_ROWS / x->rows, 1);
    const int across = tci_matrix_sharing(x, 0), below = tci_matrix_sharing(x, 1);
    tci_dim bands = tci_dim_ceil_div(x->tiles_m, most);
    int band = (int)tci_dim_known(tci_dim_ceil_div(x->tiles_m, bands));
    band += (below - band % below) % below;
    long long each = (long long)(x->tiles_m * x->tiles_n);
    tci_str_printf(out,
                   "    TC_I tc_place place(int t) {\n        tc_place p = {0, 0, 0, 0, 0, 0};\n"
                   "        const int in = t %% %lld, first = in / %lld * %d;\n"
                   "        const int left = %lld - first, rows = left < %d ? left : %d;\n"
                   "        p.m = (first + in %% %lld / %d %% rows) * %d;\n"
                   "        p.n = (in %% %lld / (%d * rows) * %d + in %% %d) * %d;\n",
                   each, (long long)x->tiles_n * band, band, (long long)x->tiles_m, band, band,
                   (long long)x->tiles_n * band, across, x->rows, (long long)x->tiles_n * band,
                   across, across, across, x->own_columns);
    for (int i = x->n_batch - 1; i >= 0; i--) {
        tci_str_printf(out, "        p.b%d = t / %lld %% %lld;\n", i, each, (long long)x->batch[i]);
        each *= x->batch[i];
    }
    tci_str_add(out, "        return p;\n    }\n");
}

static void tci_cuda_wgmma_class(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int64_t barriers = x->stages * tci_matrix_stage_bytes(x) + tci_matrix_staged_bytes(x);
    int64_t depth = x->is_boxes ? x->k_steps * tci_matrix_depth(x) : x->k;
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        k = %lld, tiles = %lld, stages = %d, "
                   "consumers = %d, last_warps = %d, sub_rows = %d,\n        columns = %d, "
                   "row_threads = %d, a_bytes = %d, "
                   "stage_bytes = %d, loaded_bytes = %d, depth = %d, k_rows = %d,\n"
                   "        a_step = %d, b_step = %d, "
                   "buffers = %d, staged_pitch = %d, staged_bytes = %d, barriers = %lld,\n"
                   "        blocks = %d, readers = %d\n"
                   "    };\n",
                   symbol, (long long)depth, (long long)x->tiles, x->stages, x->consumers,
                   x->last_warps, x->sub_rows, x->columns, x->row_threads,
                   x->rows * TCI_MATRIX_LINE, (int)tci_matrix_stage_bytes(x),
                   (tci_cuda_wgmma_loaded(x, 0) + tci_cuda_wgmma_loaded(x, 1)) * TCI_MATRIX_LINE /
                       tci_matrix_depth(x) * x->k_rows,
                   tci_matrix_depth(x), x->k_rows, x->side[0].along_k ? 2 : TCI_MATRIX_LINE,
                   x->side[1].along_k ? 2 : TCI_MATRIX_LINE, x->buffers, (int)x->staged_pitch,
                   tci_dtype_get((tc_dtype)x->staged)->bytes, (long long)barriers,
                   x->shares ? 2 : 1, (x->shares ? 2 : 4) * x->consumers);
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I void multiply(%s (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, %d, %d)(d, a, b, add);\n    }\n",
                   x->staged == TC_F16 ? "f16" : "bf16", tci_cuda_wgmma_sum(x), x->columns / 2,
                   tci_cuda_wgmma_type(x), x->columns, !x->side[0].along_k, !x->side[1].along_k);
    tci_cuda_wgmma_loads(out, "load_a", x, 0);
    tci_cuda_wgmma_loads(out, "load_b", x, 1);
    tci_cuda_wgmma_place(out, x);
    tci_str_add(out, "};\n");
}

/* The parts before the epilogue slot. Twelve warps leave each thread the 168 registers that
 * multiplying takes; of sixteen, those that multiply have these from the others, and more of twelve
 * in wide tiles. */
static void tci_cuda_wgmma_split(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int loader = 4 * x->consumers;
    bool wide = tci_matrix_is_wide(x), more = x->last_warps > TCI_MATRIX_LAST_WARPS;
    const char *take = wide   ? "        tc_take_registers<208>();\n"
                       : more ? "        tc_take_registers<168>();\n"
                              : "";
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_matrix_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n"
                   "    if (warp < %d) {\n%s"
                   "        tc_matrix_multiply<%s_shape%s>(at, warp / 4);\n%s    }\n"
                   "    if (warp == %d) {\n        if (tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_matrix_load<%s_shape>(at, args.maps);\n        }\n"
                   "        return;\n    }\n",
                   symbol, symbol, loader, take, symbol, x->dtype == TC_I8 ? ", int" : "",
                   !take[0] ? ""
                            : "        tc_leave_registers<88>();\n    } else {\n"
                              "        tc_leave_registers<88>();\n",
                   loader, symbol, symbol);
}

/* The third part's loops up to the epilogue slot. Consumers come here after their last tile and
 * help until no accumulators are left; one may be a tile ahead of the other, which a parity cannot
 * distinguish, so they wait until all have stored their last accumulators. */
static void tci_cuda_wgmma_rows(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int part_rows = TCI_MATRIX_SUB * x->sub_rows, consumers = 4 * x->consumers;
    int groups = TCI_MATRIX_WARP / x->row_threads; /* of rows and chunks that a warp is at */
    tci_str_printf(out,
                   "    const bool helps = warp < %d;\n"
                   "    const int worker = %d * (helps ? warp + %d : warp - %d) + "
                   "threadIdx.y %% %d;\n"
                   "    const int before = (%lld - 1 - (int)blockIdx.x) / (int)gridDim.x;\n"
                   "    const int last = blockIdx.x + before * gridDim.x;\n"
                   "    unsigned ready = 0;\n"
                   "    if (helps) {\n        tc_barrier_wait(tc_done<%s_shape>(at), 0);\n    }\n"
                   "    for (int t = helps ? last : blockIdx.x; t <= last; t += gridDim.x, "
                   "ready ^= 1) {\n"
                   "    const tc_place p = %s_shape::place(t);\n",
                   consumers, groups, x->last_warps, consumers + 1, groups, (long long)x->tiles,
                   symbol, symbol);
    tci_str_printf(out,
                   "    for (int part = 0; part < %d; part++) {\n"
                   "    const bool all = t == last%s;\n"
                   "    if (helps && !all) {\n        continue;\n    }\n"
                   "    if (!helps) {\n"
                   "        tc_barrier_wait(tc_ready<%s_shape>(at, part), ready);\n    }\n"
                   "    for (int unit = worker; unit < %d; unit += all ? %d : %d) {\n"
                   "    const int row = unit / %d * %d, column = unit %% %d * %d;\n",
                   x->consumers, x->buffers == 1 && x->consumers > 1 ? " && part == 1" : "", symbol,
                   part_rows / x->group_rows * x->chunks, (x->last_warps + consumers) * groups,
                   x->last_warps * groups, x->chunks, x->group_rows, x->chunks, x->lanes);
    tci_str_printf(out,
                   "    const tc_i64 at_%d = p.m + %d * part + row, at_%d = p.n + column;\n"
                   "    if (at_%d >= %lld) {\n        break;\n    }\n"
                   "    if (at_%d >= %lld) {\n        continue;\n    }\n",
                   x->m_axis, part_rows, x->n_axis, x->m_axis, (long long)x->m, x->n_axis,
                   (long long)x->n);
    for (int i = 0; i < x->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", x->batch_axis[i], i);
    }
    tci_str_printf(out,
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "tc_staged<%s_shape>(%d * part + row) + %d * column;\n",
                   symbol, x->buffers == 1 ? 0 : TCI_MATRIX_SUB * x->sub_rows,
                   tci_dtype_get((tc_dtype)x->staged)->bytes);
}

TCI_FN void tci_cuda_skeleton_open(tci_str *out, const char *symbol, const tci_loop *l, int n_maps,
                                   int n_words, int warps, int blocks)
{
    char maps[32] = "";
    if (n_maps > 0) {
        snprintf(maps, sizeof(maps), "tc_map maps[%d]; ", n_maps);
    }
    bool pairs = l->matrix && l->matrix->shares;
    tci_str_printf(out,
                   "struct %s_args { %svoid *bufs[%d]; tc_i64 lits[%d]; tc_i64 *fault; };\n"
                   "extern \"C\" __global__ void %s__launch_bounds__(%d, %d) "
                   "%s(const __grid_constant__ %s_args args)\n{\n",
                   symbol, maps, TCI_MAX(l->n_operands, 1), TCI_MAX(n_words, 1),
                   pairs ? "__cluster_dims__(2, 1, 1) " : "", TCI_MATRIX_WARP * warps, blocks,
                   symbol, symbol);
}

TCI_FN void tci_cuda_skeleton_args(tci_str *out)
{
    tci_str_add(out, "    void *const *bufs = args.bufs;\n    const tc_i64 *lits = args.lits;\n"
                     "    tc_i64 *fault = args.fault;\n");
}

TCI_FN void tci_cuda_wgmma_head(tci_str *out, const char *symbol, const tci_loop *l, int n_words)
{
    const tci_matrix *x = l->matrix;
    tci_cuda_skeleton k = tci_cuda_wgmma_describe(x);
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_wgmma_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, 2, n_words, 4 * x->consumers + 1 + x->last_warps, 1);
    tci_cuda_wgmma_split(out, symbol, x);
    tci_cuda_skeleton_args(out);
    tci_cuda_wgmma_rows(out, symbol, x);
}

/* The loop over rows ends; what was staged has been taken; the parts and the tiles end. */
TCI_FN void tci_cuda_wgmma_tail(tci_str *out, const char *symbol)
{
    tci_str_printf(out,
                   "    }\n    if (!all) {\n"
                   "        tc_warp_arrive<%s_shape>(tc_taken<%s_shape>(at, part));\n"
                   "    }\n    }\n    }\n}\n",
                   symbol, symbol);
}
